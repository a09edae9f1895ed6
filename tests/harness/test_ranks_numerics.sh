#!/usr/bin/env bash
# 16-bit gradients over data-parallel ranks. The sum over the ranks is formed in FP32 and rounded once to 16 bits; sums over a rank's
# micro-batches are kept in FP32, or with --accumulate 16 rounded at each addition. So two ranks with a micro-batch each are one rank
# that has both and --accumulate 16, bit for bit: there is one addition, rounded once. Everything else rounds elsewhere than one
# rank does, and all systems at the same places.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
[ -z "$sanitized" ] || without_mpirun
common=(--model gpt-mini --batch 4 --seq 16 --data "$text" --steps 4 --device-memory 64MB)
needs_ranks "${common[@]:0:8}"

# near A B WHAT [LR]: the same first loss, and the others within 0.2 LR of each other. Where a gradient's terms nearly cancel, their
# roundings decide its sign, and AdamW's first steps go by signs: such parameters are up to 2 LR apart (docs/commands.md).
near() {
    "$python" - "$1" "$2" "${4:-3e-4}" <<'PY' || fail "$3: $(paste "$1" "$2")"
import sys

a, b = ([float(line.split(",")[1]) for line in list(open(name))[1:]] for name in sys.argv[1:3])
bound = 0.2 * float(sys.argv[3])
assert a[0] == b[0] and a != b and all(abs(x / y - 1) < bound for x, y in zip(a, b)), [x / y - 1 for x, y in zip(a, b)]
PY
}

for numerics in bf16 fp16; do
    run 0 train in_memory "${common[@]}" --numerics "$numerics" --micro-batch 2 --accumulate 16 --control gate --clip 1 --losses one.csv --checkpoint one-$numerics
    run 0 train in_memory "${common[@]}" --numerics "$numerics" --micro-batch 1 --control gate --clip 1 --losses four.csv
    for args in "in_memory gate" "zero_offload rollback" "autohete rollback" "stronghold gate" "patrickstar gate"; do
        read -r system control <<<"$args"
        what="$system, $numerics, $control"
        both=("$system" "${common[@]}" --numerics "$numerics" --control "$control" --clip 1)
        rm -rf ranks
        run 0 train "${both[@]}" --ranks 2 --accumulate 16 --losses ranks.csv --checkpoint ranks
        cmp -s one.csv ranks.csv || fail "$what, 2 ranks: not the losses of one that rounds each sum: $(paste one.csv ranks.csv)"
        cmp -s one-$numerics/step-0000000004/unit-0001.safetensors ranks/step-0000000004/unit-0001.safetensors || fail "$what: another state"
        run 0 train "${both[@]}" --ranks 2 --losses fp32.csv # nothing is accumulated, so nothing is in FP32
        cmp -s ranks.csv fp32.csv || fail "$what, 2 ranks: --accumulate says something where there is nothing to accumulate"
        run 0 train "${both[@]}" --ranks 2 --micro-batch 1 --losses two.csv
        [ "$system" = in_memory ] && cp two.csv two-ranks.csv
        cmp -s two.csv two-ranks.csv || fail "$what, two micro-batches a rank: not in_memory's losses: $(paste two.csv two-ranks.csv)"
    done
    near four.csv two.csv "$numerics, two micro-batches a rank, beside one rank with four"
    run 0 train zero_offload "${common[@]}" --numerics "$numerics" --ranks 4 --control rollback --clip 1 --losses ranks.csv
    near four.csv ranks.csv "$numerics, four ranks, beside one with four micro-batches"
done
# That the learning rate is the measure: 33 times the default, 3 steps; and the parameters after the first. Of two micro-batches a rank
# adds sums that have been rounded, so some signs differ: 0.05% of the parameters are up to 2 LR apart, the rest is where it was. With one
# micro-batch a rank the sum is all that is rounded, which turns no sign.
lr=1e-2
for split in "one --micro-batch 1" "two --micro-batch 1 --ranks 2" "four --ranks 4"; do
    read -r name args <<<"$split"
    # shellcheck disable=SC2086 # several words
    run 0 train in_memory "${common[@]}" --numerics bf16 --lr $lr --steps 3 $args --losses "$name.csv" --checkpoint "$name-lr" --every 1 --keep 3
done
near one.csv two.csv "BF16, learning rate $lr, two micro-batches a rank" $lr
near one.csv four.csv "BF16, learning rate $lr, four ranks" $lr
"$python" - $lr <<'PY' || fail "BF16, learning rate $lr: the parameters after a step"
import glob, json, struct, sys

lr = float(sys.argv[1])


def params(name):
    for path in sorted(glob.glob(f"{name}-lr/step-0000000001/unit-*.safetensors")):
        data = open(path, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        for key, tensor in sorted(json.loads(data[8 : 8 + n]).items()):
            if key.startswith("param."):
                begin, end = (8 + n + at for at in tensor["data_offsets"])
                yield from struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])


one = list(params("one"))
for name, most in ("two", 0.002), ("four", 0):
    apart = [abs(a - b) / lr for a, b in zip(one, params(name))]
    far = sum(d > 0.1 for d in apart) / len(apart)
    assert len(apart) > 200000 and max(apart) > 0 and max(apart) <= 2.01 and far <= most, (name, len(apart), max(apart), far)
PY
# FP16 has a final check by default; an overflow in one rank's share skips the step for all.
run 0 train in_memory "${common[@]}" --numerics fp16 --micro-batch 2 --accumulate 16 --losses one.csv --inject-overflow 2:3
run 0 train zero_offload "${common[@]}" --numerics fp16 --ranks 2 --losses ranks.csv --inject-overflow 2:3 --json
cmp -s one.csv ranks.csv || fail "an overflow: $(paste one.csv ranks.csv)"
[ "$(json out 'd["control"]["verdicts"], d["control"]["loss_scale_next"]')" = "(['ok', 'skipped', 'ok', 'ok'], 32768.0)" ] || fail "an overflow is not seen"
finish
