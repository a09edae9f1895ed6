#!/usr/bin/env bash
# What train says about numerics, loss scale, clipping and skipped steps: to people, in JSON, and while it runs.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
mini=(--model gpt-mini --seq 16 --batch 4 --micro-batch 2 --data "$text" --steps 8 --device-memory 64MB)

# Spoilt in steps 3 and 6, clipped in all others: a gate clips before it steps, a rollback steps twice.
for mode in gate rollback; do
    run 0 train zero_offload "${mini[@]}" --numerics fp16 --control "$mode" --clip 0.1 --inject-overflow 3:1 --inject-overflow 6:0:nan --json
    "$python" - "$mode" <<'PY' || fail "$mode: the JSON is not what happened"
import json, sys

d, mode = json.load(open("out")), sys.argv[1]
c, good = d["control"], "ok" if mode == "gate" else "redone"
assert d["numerics"] == {"param": "f16", "grad": "f16", "accumulate": "f32", "reduce": "f16"}, d["numerics"]
assert (c["mode"], c["clip"], c["dynamic"]) == (mode, 0.1, True), c
assert c["verdicts"] == 2 * [good] + ["skipped"] + 2 * [good] + ["skipped"] + 2 * [good], c["verdicts"]
assert c["loss_scales"] == 3 * [65536] + 3 * [32768] + 2 * [16384], c["loss_scales"]
assert (c["loss_scale_first"], c["loss_scale_next"]) == (65536, 16384), c
assert (c["skipped"], c["redone"]) == (2, 0 if mode == "gate" else 6), c
assert c["norms"][2] is None and c["norms"][5] is None and all(n > 0.1 for n in c["norms"] if n), c["norms"]
# Clipped to 0.1 exactly where torch clips: the factor is 0.1 / (norm + 1e-6).
for norm, factor, verdict in zip(c["norms"], c["clip_factors"], c["verdicts"]):
    assert factor == 1 if verdict == "skipped" else abs(factor * (norm + 1e-6) - 0.1) < 1e-12, (norm, factor)
assert all(repr(x) != f"{x:.9g}" for x in d["losses"]), d["losses"]  # with all digits
PY
    run 0 train zero_offload "${mini[@]}" --numerics fp16 --control "$mode" --clip 0.1 --inject-overflow 3:1 --inject-overflow 6:0:nan
    redone=0
    [ "$mode" = rollback ] && redone=6
    grep -q "^numerics: f16 compute, f16 gradients summed in f32; control: $mode, dynamic loss scale 65536, then 16384, norm clipped to 0.1; of 8 steps 2 skipped, $redone redone$" out ||
        fail "$mode: the report does not say it: $(grep numerics: out)"
    [ "$(grep -c ' skipped$' out)" = 2 ] || fail "$mode: the table of losses does not show which steps were skipped"
done

# Where nothing looks at the gradients, nothing is said about them.
run 0 train in_memory "${mini[@]}" --numerics bf16 --json
[ "$(json out '[d["control"][k] for k in ("mode", "clip", "dynamic", "loss_scale_next", "skipped", "norms", "verdicts")]')" = \
    "['none', None, False, 1.0, 0, [], []]" ] || fail "JSON without control: $(json out 'd["control"]')"

# A scale that begins at 1024 and doubles after two steps without overflow, counted on by a checkpoint.
grows=(train in_memory "${mini[@]}" --numerics fp16 --initial-scale 1024 --growth-interval 2 --inject-overflow 4:1)
run 0 "${grows[@]}" --json
[ "$(json out '[int(x) for x in d["control"]["loss_scales"]]')" = "[1024, 1024, 2048, 2048, 1024, 1024, 2048, 2048]" ] ||
    fail "a scale that grows: $(json out 'd["control"]["loss_scales"]')"
run 0 "${grows[@]}" --steps 5 --checkpoint grown
run 0 "${grows[@]}" --checkpoint grown --resume --json
[ "$(json out '[int(x) for x in d["control"]["loss_scales"]]')" = "[1024, 2048, 2048]" ] || fail "resumed: $(json out 'd["control"]["loss_scales"]')"
run 0 "${grows[@]}" --growth-interval 3 --steps 9 --checkpoint grown --resume
grep -q "^grown was made with --loss-scale dynamic from 1024, growing every 2; going on with dynamic from 1024, growing every 3" err ||
    fail "another interval is not said: $(cat err)"
run 0 sim in_memory --model gpt-tiny --cluster local --numerics fp16 --control gate --initial-scale 8 --growth-interval 5
grep -q "loss scale dynamic from 8, doubled after 5 iterations without overflow" out || fail "sim does not show the scale"

# While it runs: progress comes every two seconds, with the steps skipped so far.
"$hetbench" train in_memory "${mini[@]}" --steps 1000000 --control gate --inject-overflow 1:1 >/dev/null 2>progress &
pid=$!
for ((i = 0; i < 150; i++)); do
    sleep 0.2
    if grep -q skipped progress; then break; fi
done
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
grep -Eq '^step [0-9]+/1000000  loss [0-9.]+  1 skipped  ' progress || fail "progress does not show skipped steps: $(cat progress)"
# A pipeline with a final check of its own reports its outcomes, without --control too.
own=(--model llama-tiny --batch 2 --micro-batch 1 --seq 16 --numerics fp32 --data "$text" --steps 3 --inject-overflow 2:1:nan --json)
run 0 train in_memory "${own[@]}" --control gate --losses gate.csv
run 0 train sysx "${own[@]}" --losses own.csv
cmp -s gate.csv own.csv || fail "sysx's own rollback: losses are not in_memory's"
[ "$(json out 'd["control"]["mode"], d["control"]["skipped"], d["control"]["verdicts"]')" = "('none', 1, ['ok', 'skipped', 'ok'])" ] ||
    fail "sysx does not report its outcomes: $(json out 'd["control"]')"
finish
