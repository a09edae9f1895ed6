#!/usr/bin/env bash
# With COLUMNS=80 no line of any command is longer than 80 characters; without a terminal and COLUMNS nothing is broken or coloured.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
export COLUMNS=80 NO_COLOR=

# narrow STATUS ARGUMENTS...: the command ends so, and both outputs keep within the width.
narrow() {
    run "$@"
    "$python" - "$COLUMNS" out err <<'PY' || fail "hetbench ${*:2}: lines longer than $COLUMNS"
import sys

width, found = int(sys.argv[1]), []
for name in sys.argv[2:]:
    # stderr's progress is rewritten in place
    found += [line for line in open(name, encoding="utf-8").read().replace("\r", "\n").split("\n") if len(line) > width]
print("\n".join(found[:3]))
sys.exit(bool(found))
PY
}

narrow 0 --help
commands=$(sed -n 's/^  \([a-z]\+\) .*/\1/p' out)
[ "$(wc -w <<<"$commands")" -ge 14 ] || fail "hetbench --help lists $(wc -w <<<"$commands") commands"
for command in $commands; do
    narrow 0 "$command" --help
    grep -q '^Example:$' out || fail "$command --help has no example"
done
for kind in systems models gpus cpus links ssds clusters software experiments; do
    narrow 0 list "$kind"
    narrow 0 list "$kind" --why --all
done
narrow 0 list systems lohan_cap
for kind in cluster model experiment; do
    narrow 0 new "$kind"
    cp out narrow
    COLUMNS=40 run 0 new "$kind"
    cmp -s narrow out || fail "new $kind: a file's lines are broken"
done

mixed=(--model llama-7b --gpus a100-40gb:4,v100-32gb:4 --ram 512GB --batch 32)
for command in plan sim verify; do
    narrow 0 "$command" cephalo "${mixed[@]}"
    narrow 3 "$command" in_memory "${mixed[@]}"
done
narrow 2 plan cephalo "${mixed[@]}" --set 'm=1,2,3'
narrow 0 compare --models gpt2-124m,gpt-tiny --gpus a10:2 --ram 64GB --batch 4
narrow 0 compare --models gpt2-124m --cluster lohan-2x4090 --batch 4 --why --all
narrow 0 maxsize --models 'gpt-m*' --cluster local --device-memory 8MB --batch 4
narrow 0 maxsize --models 'gpt-m*' --cluster local --device-memory 8MB --batch 4 --of seq --why --all
narrow 0 advise --model gpt2-124m --gpus rtx4090:1,rtx3090:1 --ram 64GB --batch 4 --systems ddp,fsdp,zero_offload,lohan
narrow 0 reproduce 'autohete.fig3a.zero*'
narrow 0 reproduce 'autohete.fig3a.zero*' --why
tiny=(--model gpt-mini --cluster local --device-memory 100MB --batch 2 --seq 16)
narrow 0 train zero_offload "${tiny[@]}" --data "$text" --steps 3 --checkpoint checkpoints --control gate
narrow 0 train fsdp "${tiny[@]}" --ranks 2 --data "$text" --steps 2 --store stores
narrow 0 list stores stores
narrow 0 reshard stores --to 1,1,1
narrow 0 profile --model gpt-mini --device-memory 100MB --batch 2 --seq 16 --systems in_memory --repeat 1
env -u COLUMNS "$hetbench" new experiment | sed 's/autohete-4b/gpt-tiny/; s/, 16, 32\]/]/' >e.yaml
narrow 0 experiment e.yaml --out e
narrow 0 report e
narrow 0 validate
narrow 0 goodput --model gpt-mini --batch 8 --micro-batch 1 --numerics fp16 --iterations 3 --warmup 1 --draw nodes=4,hours=2,instance=p3.2xlarge
narrow 0 elastic fsdp --model gpt-mini --batch 4 --micro-batch 1 --seq 16 --data "$text" --nodes 2 --store elastic --steps 2 --every 1
COLUMNS=50 narrow 0 list gpus

# JSON is never broken; without a width a row is one line, with all its columns.
run 0 list clusters --json
[ "$(json out 'len(d["clusters"]) > 0')" = True ] || fail "COLUMNS breaks JSON"
run 0 sim zero_offload "${tiny[@]}"
grep -q 'not shown' out && fail "sim leaves a column out at 80: $(grep 'not shown' out)"
unset COLUMNS
run 0 list clusters
grep -Eq '^sysx-2node +2  8 x v100-32gb-pcie \(34.09 GB\) .* epyc-7452$' out || fail "a row is not whole: $(grep sysx-2node out)"
! grep -q "$(printf '\033')" out || fail "a pipe is coloured"
finish
