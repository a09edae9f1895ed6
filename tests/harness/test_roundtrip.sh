#!/usr/bin/env bash
# A dumped graph is the graph: verified and simulated alike. A trace replays to the peaks that the run saw.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

scenario=(--model autohete-2b --cluster autohete-1gpu --batch 8)
for system in in_memory_ckpt zero_offload zero_offload_ckpt; do
    run 0 sim "$system" "${scenario[@]}" --micro-batch 4 --dump graph.yaml --trace built.json --json
    cp out built.result
    run 0 verify --load graph.yaml --json
    [ "$(json out 'd["schedule_hash"], all(d["proved"].values())')" = \
        "('$(json built.result 'd["schedule_hash"]')', True)" ] || fail "$system: the loaded graph is another"
    run 0 sim --load graph.yaml --cluster autohete-1gpu --trace loaded.json --json
    for key in iteration_time_s lower_bound_s peak_bytes bound_bytes lane_busy; do
        [ "$(json out "d['$key']")" = "$(json built.result "d['$key']")" ] || fail "$system: $key differs after loading"
    done
    cmp -s built.json loaded.json || fail "$system: the loaded graph simulates to another trace"
    run 0 sim --load graph.yaml --dump again.yaml --cluster autohete-1gpu
    cmp -s graph.yaml again.yaml || fail "$system: a dump of a dump differs"
    run 0 sim "$system" "${scenario[@]}" --micro-batch 4 --replay built.json --json
    for key in iteration_time_s peak_bytes obtained; do
        [ "$(json out "d['$key']")" = "$(json built.result "d['$key']")" ] || fail "$system: $key differs in the replay"
    done
done

# A real run's trace, replayed: the peaks are those of its arenas, to the byte.
tiny=(--model gpt-mini --batch 4 --micro-batch 2 --device-memory 20MB)
run 0 train zero_offload "${tiny[@]}" --data "$text" --steps 5 --trace real.json --dump real.yaml --json
cp out real.result
run 0 sim zero_offload "${tiny[@]}" --cluster local --replay real.json --json
[ "$(json out 'd["obtained"]')" = measured ] || fail "a replayed real run is not called measured"
[ "$(json out 'd["peak_bytes"]')" = "$(json real.result '{m["space"]: m["arena_peak_bytes"] for m in d["memory"]}')" ] ||
    fail "the replay's peaks are not those of the arenas"
run 0 sim --load real.yaml --cluster local --replay real.json --json
refused 2 "real.json:1: key 'hash'" sim in_memory "${tiny[@]}" --cluster local --replay real.json
head -c 3000 real.json >cut.json
refused 2 "cut.json" sim zero_offload "${tiny[@]}" --cluster local --replay cut.json
finish
