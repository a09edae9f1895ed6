#!/usr/bin/env bash
# Ranks that differ: shares, micro-batches and numbers of them by rank, simulated and trained; counted in the trace; saved and resumed.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
model=(--model gpt-tiny --seq 16)

# Invalid plans.
four=(sim fsdp "${model[@]}" --cluster autohete-4gpu --batch 8)
refused 2 "--set 'm=4,x': element 2 'x' is not an integer" "${four[@]}" --set m=4,x
refused 2 "--set 'm=4,2,2': m has 3 elements; expected 4" "${four[@]}" --set m=4,2,2
refused 2 "the ranks' micro-batches have 9 sequences: expected the batch's 8" "${four[@]}" --set m=1 --set l=5,2,1,1
refused 2 "the ranks' micro-batches have 0 sequences: expected the batch's 8" "${four[@]}" --set m=1 --set l=0
refused 2 "the sum of l is 9, which does not divide the batch of 8 sequences; expected m as well" "${four[@]}" --set l=5,2,1,1
refused 2 "the sum of m is 12, which does not divide the batch of 8 sequences; expected l as well" "${four[@]}" --set m=3
refused 2 "every rank's share of the parameters is 0: expected at least one above 0" "${four[@]}" --set share=0
refused 2 "the 4 devices of cluster 'autohete-4gpu' do not divide the batch of 6 sequences" sim fsdp "${model[@]}" --cluster autohete-4gpu --batch 6

# Other systems beside it: sizes are the plan's.
run 0 compare --systems in_memory,fsdp,gpipe --model llama-tiny --cluster autohete-4gpu --batch 8
grep -q 'as their plans say$' out && grep -Eq '^  fsdp +2 ' out || fail "compare: $(cat out)"

# A rank that only holds parameters takes no time from the others.
for l in 3,3,3,3 3,3,3,0; do
    run 0 sim fsdp --model autohete-2b --seq 512 --cluster autohete-4gpu --batch $(($(tr , + <<<$l))) --set m=1 --set share=0,0,0,1 --set l=$l --json
    json out 'd["iteration_time_s"]' >>times
done
[ "$(sort -g times | head -n 1)" = "$(tail -n 1 times)" ] || fail "less work takes longer: $(cat times)"

# Simulated with every rank's own rates.
run 0 sim fsdp "${model[@]}" --cluster "$root/tests/data/mixed-2x2.yaml" --batch 9 --set l=5,2,1,1 --set share=3,1,1,0 --json
[ "$(json out '(d["status"], d["scenario"]["gpus_text"].count("2 x "))')" = "('ok', 2)" ] || fail "a mixed cluster: $(cat out)"

common=("${model[@]}" --data "$text" --steps 4)
needs_ranks "${common[@]}"

# With one micro-batch a rank sums are those of one rank, whatever the shares are.
run 0 train in_memory "${common[@]}" --batch 4 --micro-batch 1 --losses one.csv
for system in fsdp fsdp_ga; do
    for share in 0,0.3,0.7,0 1,0,0,0 0,0,0,1; do
        run 0 train $system "${common[@]}" --batch 4 --ranks 4 --set share=$share --losses u.csv
        cmp -s one.csv u.csv || fail "$system share=$share: $(paste one.csv u.csv)"
    done
done

run 0 train ddp "${common[@]}" --batch 4 --ranks 4 --losses u.csv
cmp -s one.csv u.csv || fail "ddp: $(paste one.csv u.csv)"

# count KIND: of its ops in an iteration of a rank, by the trace.
count() {
    "$python" - "$1" <<'PY'
import json, sys
d = json.load(open("t.json"))
ranks = [sum(e["ph"] == "X" and e.get("pid") == r and e["name"].startswith(sys.argv[1]) for e in d["traceEvents"]) for r in range(4)]
assert len(set(ranks)) == 1, ranks
print(ranks[0] // d["otherData"]["iterations"])
PY
}

# Unequal numbers of micro-batches: a sum of sums, in another order. gpt-tiny has 6 units and a tied table.
run 0 train in_memory "${common[@]}" --batch 9 --micro-batch 1 --losses one.csv
for system in fsdp fsdp_ga; do
    run 0 train $system "${common[@]}" --batch 9 --ranks 4 --set l=5,2,1,1 --set m=1 --losses u.csv --trace t.json
    near 1e-6 one.csv u.csv
    [ "$(count AG) $(count RS)" = "60 $([ $system = fsdp ] && echo 6 || echo 30)" ] ||
        fail "$system: $(count AG) all-gathers and $(count RS) reduce-scatters"
    run 0 sim $system --model gpt-tiny --seq 16 --cluster autohete-4gpu --batch 9 --set l=5,2,1,1 --set m=1
    run 0 train $system "${common[@]}" --batch 9 --ranks 4 --set l=0,5,0,4 --set m=1 --set share=0.5,0,0,0.5 --losses u.csv
    near 1e-6 one.csv u.csv
    run 0 train $system "${common[@]}" --batch 9 --ranks 4 --set m=5,2,1,1 --set communicators=2 --losses u.csv
    near 1e-6 one.csv u.csv
    run 0 train $system "${common[@]}" --batch 9 --ranks 4 --set l=5,2,1,1 --set keep=1 --losses u.csv --trace t.json
    near 1e-6 one.csv u.csv
    [ "$(count AG)" = 6 ] || fail "$system keep=1: $(count AG) all-gathers"
done

run 0 train ddp "${common[@]}" --batch 9 --ranks 4 --set l=5,2,1,1 --losses u.csv --trace t.json
near 1e-6 one.csv u.csv
[ "$(count AG) $(count RS) $(count AR)" = "0 0 6" ] || fail "ddp: $(count AG), $(count RS), $(count AR) collectives"
refused 2 "rank 1 has no micro-batch: expected at least one" sim ddp "${model[@]}" --cluster autohete-4gpu --batch 9 --set l=5,0,3,1

# Whale gives each rank sequences by its speed. Equal ranks: 9 are 3, 2, 2, 2. In FP32 the A6000 of Cluster A gets more than an L4,
# whose 72 W make it about as fast as a P40, and that more than a P100. In FP16 an L4 has tensor cores, and a P40 has not.
run 0 train whale "${common[@]}" --batch 9 --ranks 4 --losses u.csv --trace t.json
near 1e-6 one.csv u.csv
[ "$(count AR)" = 6 ] || fail "whale: $(count AR) all-reduces"
run 0 sim whale --model gpt2-124m --seq 512 --set c=12 --cluster cephalo-a --numerics fp32 --batch 128 --json
mv out whale.json
run 0 sim whale --model gpt2-124m --seq 512 --set c=12 --cluster cephalo-a --numerics fp16 --batch 128 --json
mv out half.json
run 0 sim ddp --model gpt2-124m --seq 512 --set c=12 --cluster cephalo-a --numerics fp32 --batch 128 --json
"$python" - whale.json out half.json <<'PY' || fail "whale does not go by the speeds"
import json, sys
whale, ddp, half = (json.load(open(path)) for path in sys.argv[1:])
m = whale["plan"]["variables"]["m"]
l4, a6000, p40, p100 = m[0], m[2], m[3], m[7]
assert sum(m) == 128 and whale["plan"]["variables"]["l"] == [1] * 8, m
assert a6000 > 2 * l4 and l4 >= p40 > p100 >= 1, m
m = half["plan"]["variables"]["m"]
assert m[2] > m[0] > 2 * m[3] > 0, m
assert whale["iteration_time_s"] < ddp["iteration_time_s"], (whale["iteration_time_s"], ddp["iteration_time_s"])
PY
refused 2 "a batch of 3: expected a sequence for each of 8 devices" sim whale "${model[@]}" --cluster cephalo-a --batch 3

# Overflows are found and undone on every rank. A resumed training continues as if it had not been stopped, on other ranks too.
# shellcheck disable=SC2054 # vectors
uneven=(--batch 9 --ranks 4 --set l=5,0,3,1 --set m=1 --set share=0,0.25,0,0.75)
for control in gate rollback; do
    run 0 train in_memory "${common[@]}" --batch 9 --micro-batch 1 --numerics fp16 --control $control --losses one.csv --inject-overflow 2:1
    run 0 train fsdp "${common[@]}" "${uneven[@]}" --numerics fp16 --control $control --losses u.csv --inject-overflow 2:1
    near 1e-4 one.csv u.csv
    # The gradient checks of each rank cover all gradients; the norm counts them once.
    run 0 train in_memory "${common[@]}" --batch 4 --micro-batch 1 --control $control --clip 0.5 --losses one.csv
    run 0 train ddp "${common[@]}" --batch 4 --ranks 4 --control $control --clip 0.5 --losses u.csv
    near 1e-6 one.csv u.csv
done
run 0 train fsdp "${common[@]}" "${uneven[@]}" --losses whole.csv
run 0 train fsdp "${model[@]}" --data "$text" --steps 2 "${uneven[@]}" --checkpoint ck --save saved
cp -r ck ck2
run 0 train fsdp "${common[@]}" "${uneven[@]}" --checkpoint ck --resume --losses u.csv
cmp -s whole.csv u.csv || fail "resumed: $(paste whole.csv u.csv)"
run 0 train in_memory "${common[@]}" --batch 9 --micro-batch 1 --checkpoint ck2 --resume --losses u.csv
near 1e-6 whole.csv u.csv
run 0 train ddp "${common[@]}" --batch 9 --ranks 4 --set l=5,2,1,1 --checkpoint ck2 --resume
run 0 train ddp "${model[@]}" --data "$text" --steps 6 --batch 9 --ranks 4 --set l=5,2,1,1 --checkpoint ck2 --resume --losses u.csv
run 0 train in_memory "${model[@]}" --data "$text" --steps 6 --batch 9 --micro-batch 1 --losses whole.csv
near 1e-6 whole.csv u.csv
run 0 train fsdp "${common[@]}" "${uneven[@]}" --init saved --lr 0 --save again
cmp -s saved/model.safetensors again/model.safetensors || fail "weights that were not changed differ"
finish
