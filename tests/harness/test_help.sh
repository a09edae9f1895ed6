#!/usr/bin/env bash
# Every command has help, and every command's JSON is valid and says where its numbers come from.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

run 0 -h
run 0 --help
commands=(list plan sim compare advise new maxsize verify profile train elastic reproduce experiment report reshard goodput)
for command in "${commands[@]}"; do
    grep -q "^  $command " out || fail "hetbench --help does not name $command"
done
for command in "${commands[@]}"; do
    run 0 "$command" --help
    grep -q "^Usage: hetbench $command" out || fail "$command --help shows no usage"
    grep -q -- "--json" out || fail "$command --help does not name --json"
    [ ! -s err ] || fail "$command --help writes to standard error"
    cp out long
    run 0 "$command" -h
    cmp -s long out || fail "$command -h is not $command --help"
    run 0 help "$command"
    cmp -s long out || fail "help $command is not $command --help"
    # argp indents an option wrongly after some lengths of the text before it: another wording helps.
    ! grep -qE '^ {30,}-' out || fail "$command --help has an option out of its column: $(grep -E '^ {30,}-' out)"
done
# An option stands under a heading of the command: profile measures and trains nothing.
run 0 profile --help
[ "$(grep -oE '^ [A-Z][a-z]+:' out | tr -d '\n')" = " Scenario: Measuring: Output:" ] || fail "headings of profile: $(cat out)"

tiny=(--model gpt-mini --cluster local --device-memory 100MB --batch 2)
# The commit is that of the build, whatever the folder of the sources holds when the program runs.
run 0 sim in_memory --model gpt-mini --cluster local --json
built=$(json out 'd["commit"]')
PATH=/nowhere "$hetbench" sim in_memory --model gpt-mini --cluster local --json >out
[ "$(json out 'd["commit"]')" = "$built" ] || fail "the commit needs git: $(json out 'd["commit"]')"
! git -C "$root" describe --always >/dev/null 2>&1 || [ "$built" != unknown ] || fail "the commit is not known"

provenance='d["obtained"], len(d["command"]) > 0, len(d["commit"]) > 0, len(d["machine"]) > 0'
for kind in systems models gpus clusters; do
    run 0 list "$kind" --json
    [ "$(json out "len(d['$kind']) > 0")" = True ] || fail "list $kind --json is empty"
    run 0 list "$kind"
done
for command in plan sim verify; do
    run 0 "$command" zero_offload "${tiny[@]}" --json
    [ "$(json out "$provenance")" = "('simulated', True, True, True)" ] || fail "$command --json has no provenance"
    [ "$(json out 'd["status"], sorted(d["bound_bytes"])')" = "('ok', ['device 0', 'host 0'])" ] ||
        fail "$command --json has no status or bound"
done
run 0 sim zero_offload "${tiny[@]}" --json
for key in iteration_time_s tokens_per_s samples_per_s tflops_per_gpu mfu peak_bytes bound_bytes planned_bytes lane_busy \
    lower_bound_s bubble_ratio; do
    [ "$(json out "d['$key'] is not None")" = True ] || fail "sim --json has no $key"
done
[ "$(json out 'all(d["peak_bytes"][k] <= d["bound_bytes"][k] for k in d["peak_bytes"])')" = True ] ||
    fail "a peak is above its bound"
run 0 plan zero_offload --model gpt-mini --cluster local --set c=3 --json
[ "$(json out 'd["plan"]["inputs"]')" = "{}" ] || fail "zero_offload decides nothing and was given something"
[ "$(json out 'd["plan"]["variables"]["c"]')" = 3 ] || fail "plan --set c=3 gives another c"
run 0 train in_memory "${tiny[@]}" --data "$text" --steps 3 --json
[ "$(json out "$provenance")" = "('measured', True, True, True)" ] || fail "train --json has no provenance"
[ "$(json out 'len(d["losses"]), d["training"]["steps_done"]')" = "(3, 3)" ] || fail "train --json lacks losses"
run 0 profile --model gpt-mini --batch 1 --seq 8 --device-memory 100MB --repeat 1 --out costs.yaml --json
[ "$(json out 'len(d["machine"]) > 0')" = True ] || fail "profile --json does not name the machine"
run 0 sim zero_offload --model gpt-mini --cluster local --batch 1 --seq 8 --device-memory 100MB --profile costs.yaml
run 0 sim zero_offload "${tiny[@]}"
grep -q "(simulated)" out || fail "sim does not say that its numbers are simulated"
run 0 train in_memory "${tiny[@]}" --data "$text" --steps 1
grep -q "(measured)" out || fail "train does not say that its numbers are measured"

# Scripts refuse what they do not know, with one line, before they install or build anything.
for words in "quickstart --nosuch" "quickstart --data none" "quickstart --steps x" "check --nosuch" "check --only x" "scripts/bench x" "scripts/gpu-bundle x"; do
    status=0
    # shellcheck disable=SC2086 # words
    "$root"/$words >out 2>err </dev/null || status=$?
    if [ "$status" != 2 ] || [ -s out ] || [ "$(wc -l <err)" != 1 ]; then fail "$words: status $status: $(cat out err)"; fi
done
finish
