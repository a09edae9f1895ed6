#!/usr/bin/env bash
# Whatever the user gets wrong is one line that says where, and what was expected.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
tiny=(--model gpt-tiny --cluster local --device-memory 100MB)

# ---- words and options ----

refused 2 "a command is missing"
refused 2 "unknown command 'smi'; expected 'sim'" smi
refused 2 "'autohet' is a system; expected a command before it, such as 'hetbench sim autohet'" autohet --model llama-7b
refused 2 "sim: expected SYSTEM" sim
refused 2 "unknown system 'zero_ofload'; expected 'zero_offload'" sim zero_ofload "${tiny[@]}"
refused 2 "sim: unexpected word 'b'" sim a b
refused 2 "list: unknown kind" list things
refused 2 "sim: unknown option '--modle'; expected --model" sim zero_offload --modle gpt-tiny
refused 2 "sim: unknown option '-x'" sim zero_offload -x
refused 2 "sim: --model needs a value" sim zero_offload --model
refused 2 "sim: --json takes no value" sim zero_offload "${tiny[@]}" --json=yes
refused 2 "sim: unknown option '--steps'" sim zero_offload "${tiny[@]}" --steps 3
refused 2 "--model is missing" sim zero_offload --cluster local
refused 2 "--gpus or --cluster is missing" sim zero_offload --model gpt-tiny
refused 2 "train: --data is missing" train in_memory "${tiny[@]}"
refused 2 "--models is missing" compare --cluster local

# ---- numbers and units ----

refused 2 "--batch: '3e9' .*expected a whole number" sim zero_offload "${tiny[@]}" --batch 3e9
refused 2 "--batch: -1 is out of range; expected 1 to" sim zero_offload "${tiny[@]}" --batch -1
refused 2 "--batch: 0 is out of range" sim zero_offload "${tiny[@]}" --batch 0
refused 2 "--batch: '8.5' " sim zero_offload "${tiny[@]}" --batch 8.5
refused 2 "--batch: '99999999999999999999' " sim zero_offload "${tiny[@]}" --batch 99999999999999999999
refused 2 "train: --device needs --backend cuda" train in_memory --model gpt-tiny --data "$text" --device 1
refused 2 "--device-memory: '40' has no unit; expected a size" sim zero_offload --model gpt-tiny --cluster local --device-memory 40
refused 2 "--device-memory: '40 GX' has the unknown unit" sim zero_offload --model gpt-tiny --cluster local --device-memory '40 GX'
refused 2 "--device-memory: '40 GB/s' " sim zero_offload --model gpt-tiny --cluster local --device-memory '40 GB/s'
refused 2 "--device-memory: '-1 GB' " sim zero_offload --model gpt-tiny --cluster local --device-memory '-1 GB'
refused 2 "--through-host: '1e30GB/s' is more than 17 TB/s; expected a rate" sim zero_offload --model gpt-tiny --gpus rtx4090:2 --ram 64GB --through-host 1e30GB/s
refused 2 "1048576 micro-batches make too large a graph of 'gpt-tiny'; expected at most 349525" sim zero_offload "${tiny[@]}" --batch 1048576 --micro-batch 1
refused 2 "micro-batch 3 does not divide the batch of 8" sim zero_offload "${tiny[@]}" --micro-batch 3
refused 2 "the 4 devices of cluster 'autohete-4gpu' do not divide the batch of 6" sim zero_offload --model gpt-tiny --cluster autohete-4gpu --batch 6
refused 2 "micro-batch 4 does not divide the 2 sequences of each of 4 devices" sim zero_offload --model gpt-tiny --cluster autohete-4gpu --micro-batch 4
refused 2 ".*129" sim zero_offload "${tiny[@]}" --seq 129
refused 2 "--set 'c=9': c is out of range; expected 0 to 4" sim zero_offload "${tiny[@]}" --set c=9
refused 2 "m is set beside least=1; expected one of them" plan stronghold "${tiny[@]}" --set m=2 --set least=1
refused 2 "--set 'z=1': zero_offload has no variable 'z'" sim zero_offload "${tiny[@]}" --set z=1
refused 2 "--set 'c' is not NAME=VALUE" sim zero_offload "${tiny[@]}" --set c
refused 2 "numerics 'fp8' is not known" sim zero_offload "${tiny[@]}" --numerics fp8
refused 2 "--initial-scale: 0 is out of range" sim zero_offload "${tiny[@]}" --initial-scale 0
refused 2 "--growth-interval: 0 is out of range" sim zero_offload "${tiny[@]}" --growth-interval 0
refused 2 "an initial scale is for a dynamic loss scale: expected loss scale dynamic with it" sim zero_offload "${tiny[@]}" --control gate --initial-scale 8
refused 2 "a growth interval is for a dynamic loss scale" sim zero_offload "${tiny[@]}" --control gate --loss-scale 8 --growth-interval 8
refused 2 "unknown software 'eagre'; expected 'eager'" sim zero_offload "${tiny[@]}" --software eagre
refused 2 "software 'eager' cannot train: it holds what other programs' kernels do; expected fused" train in_memory "${tiny[@]}" --data "$text" --software eager
refused 2 "unknown software 'lazy'" reproduce 'autohete.fig2.*' --software lazy
refused 2 "no-such.yaml: " plan zero_offload "${tiny[@]}" --software no-such.yaml
refused 2 "--lr: " train in_memory "${tiny[@]}" --data "$text" --lr fast
refused 2 "--beta1: 1 is out of range" train in_memory "${tiny[@]}" --data "$text" --beta1 1
refused 2 "--iterations: .* memory" sim zero_offload "${tiny[@]}" --iterations 1000000 --batch 1024 --micro-batch 1
refused 2 "--jitter: 100 is out of range" sim zero_offload "${tiny[@]}" --jitter 100
refused 2 "--runs without --jitter; expected both: runs differ by their jitter alone" sim zero_offload "${tiny[@]}" --runs 3
refused 2 "--runs: 0 is out of range; expected 1 to 100000" sim zero_offload "${tiny[@]}" --jitter 5 --runs 0
refused 2 "--runs, --what-if or --break-even beside --replay; expected no trace" sim zero_offload "${tiny[@]}" --what-if --replay none.json

# ---- bad iterations ----

refused 2 "--bad: 0 is out of range; expected 1 to 8" sim zero_offload "${tiny[@]}" --control gate --bad 0
refused 2 "--bad: 9 is out of range; expected 1 to 8" sim zero_offload "${tiny[@]}" --control gate --bad 9
refused 2 "--bad: '2,3' has ',3' after the number; expected a whole number" sim zero_offload "${tiny[@]}" --control gate --bad 2,3
refused 2 "--bad: schedule 'zero_offload' has no final check, so no outcome changes it; expected --control" sim zero_offload "${tiny[@]}" --bad 3
refused 2 "--bad beside --replay; expected one of them" sim zero_offload "${tiny[@]}" --control gate --bad 3 --replay none.json

# ---- drills ----

drill() { refused 2 "$1" train in_memory "${tiny[@]}" --data "$text" --steps 3 --control gate "${@:2}"; }
for fault in 3 x:1 1:x 1: :1 1:1: 1:1:huge 1:1:inf:2 1:-1 -1:1 99999999999:1; do
    drill "--inject-overflow '$fault': expected STEP:UNIT or STEP:UNIT:inf, nan or square" --inject-overflow="$fault"
done
drill "--inject-overflow '0:1': steps count from 1" --inject-overflow 0:1
drill "--inject-overflow '1:6': unit 6 is out of range 0..5" --inject-overflow 1:6
drill "--inject-overflow '1:1:square': the gradient is f16 with a loss scale of 65536, and no square in it overflows" --numerics fp16 \
    --batch 4 --micro-batch 4 --inject-overflow 1:1:square
drill "--inject-overflow '1:1:square': the gradient is f32 with a loss scale of 1.84467e\+19, and no square in it overflows" \
    --loss-scale 18446744073709551616 --inject-overflow 1:1:square
refused 2 "--inject-overflow: no gradient check; expected --control gate or rollback" train in_memory "${tiny[@]}" \
    --data "$text" --inject-overflow 1:1

# ---- model and cluster files: file, line, column, key ----

sim_model() { refused 2 "$1" sim zero_offload --model "$work/m.yaml" --cluster local; }
# model LINES: m.yaml, a model that lacks its heads on line 8.
model() { printf 'arch: gpt\nlayers: 2\nwidth: 64\nvocab: 256\nmax_seq: 32\nname: m\nsource: test\n%s\n' "$1" >m.yaml; }
refused 2 "./none.yaml: .*No such file" sim zero_offload --model ./none.yaml --cluster local
refused 2 "unknown model 'gpt-tini'; expected 'gpt-" sim zero_offload --model gpt-tini --cluster local
model $'heads: 4\nlayrs: 2'
sim_model "$work/m.yaml:9:1: key 'layrs': .*layers"
model 'heads: 3'
sim_model "$work/m.yaml:8:8: key 'heads': .*divide"
model 'heads: -4'
sim_model "$work/m.yaml:8:8: key 'heads': "
model 'heads: 3e9'
sim_model "$work/m.yaml:8:8: key 'heads': .*3e9"
model 'heads: [4'
sim_model "$work/m.yaml:[0-9]+:[0-9]+: "
: >m.yaml
sim_model "$work/m.yaml:"

cluster() {
    printf 'name: c\nsource: test\nnodes:\n  - cpu: epyc-7713\n    ram: %s\n    gpus: [{type: a100-40gb}]\n    pcie: %s\n' "$1" "$2"
}
sim_cluster() { refused 2 "$1" sim zero_offload --model autohete-2b --cluster "$work/c.yaml"; }
link='{name: l, efficiency: 0.9, duplex: true, latency: 10 us, source: test, bandwidth: %s}'
cluster '440 GB' pcie4-x16 >c.yaml
run 0 sim zero_offload_ckpt --model autohete-2b --cluster "$work/c.yaml"
cluster '440' pcie4-x16 >c.yaml
sim_cluster "$work/c.yaml:5:10: key 'ram': '440' has no unit; expected a size"
cluster '440 GB/s' pcie4-x16 >c.yaml
sim_cluster "$work/c.yaml:5:10: key 'ram': "
cluster '-440 GB' pcie4-x16 >c.yaml
sim_cluster "$work/c.yaml:5:10: key 'ram': "
# shellcheck disable=SC2059 # the link is a format
cluster '440 GB' "$(printf "$link" '0 GB/s')" >c.yaml
sim_cluster "$work/c.yaml:7:[0-9]+: key 'bandwidth': "
refused 2 "unknown cluster 'autohete-1gp'" sim zero_offload --model gpt-tiny --cluster autohete-1gp

# ---- training data ----

train() { refused 2 "$1" train in_memory "${tiny[@]}" --data "${@:2}" --steps 1; }
train "$work/none.txt: No such file" "$work/none.txt"
train "$work: is a directory" "$work"
: >empty.txt
train "$work/empty.txt: is empty" "$work/empty.txt"
printf 'too short' >short.txt
train "$work/short.txt: has 9 bytes; expected at least 130" "$work/short.txt"
{
    head -c 500 "$text"
    printf '\0'
} >binary.txt
train "$work/binary.txt: byte 500 is NUL" "$work/binary.txt"
# Token ids: 200 of them, of gpt-tiny's vocabulary of 256; then one that is not, half an id, and too few.
"$python" -c 'import sys; sys.stdout.buffer.write(bytes(b for i in range(200) for b in (i, 0)))' >ids.u16
run 0 train in_memory "${tiny[@]}" --data ids.u16 --steps 1
cp ids.u16 ids.bin && run 0 train in_memory "${tiny[@]}" --data ids.bin --steps 1
train "ids.u16: has 100 tokens; expected at least 130" ids.u16 --data-format u32
train "ids.u16: byte 0 is NUL: the file is binary; expected a text to train on, or --data-format" ids.u16 --data-format text
train "--data-format 'u8' is not known; expected text, u16, u32 or images" ids.u16 --data-format u8
printf '\377\001' >>ids.u16
train "ids.u16: token 200, at byte 400, is 511; the model's vocabulary has ids 0 to 255" ids.u16
printf x >>ids.u16
train "ids.u16: has 403 bytes, not a multiple of 2; expected 16-bit token ids to train on" ids.u16
train "none.u32: No such file or directory; expected 32-bit token ids" none.u32
printf 'arch: gpt\nlayers: 1\nwidth: 8\nheads: 2\nvocab: 100\nmax_seq: 16\nname: m\nsource: test\n' >small.yaml
refused 2 "model 'm' has a vocabulary of 100" train in_memory --model "$work/small.yaml" --data "$text" --steps 1

# ---- graph files ----

refused 2 "$work/none.yaml: .*No such file" sim --load "$work/none.yaml" --cluster local
refused 2 "sim: --load stands for a system" sim zero_offload --load "$work/none.yaml"
refused 2 "--load stands for a whole scenario" sim --load "$work/none.yaml" --model gpt-tiny
refused 2 "--load stands for a whole scenario" sim --load "$work/none.yaml" --cluster lohan-4x4090 --only rtx-4090:2
refused 2 "--through-host is given beside --load; expected --cluster as well" sim --load "$work/none.yaml" --through-host 1GB/s
run 0 plan zero_offload --model gpt-mini --cluster local --batch 1 --dump good.yaml
refused 2 "a graph file has no costs" sim --load "$work/good.yaml"
"$python" - <<'PY'
# A graph file is text with one op a line. A cycle is an op that names a later one; a dangling id names no op.
import re

lines = open("good.yaml").read().split("\n")
ops = [i for i, line in enumerate(lines) if re.search(r"\bafter: *\[", line)]
assert ops, "no op of the dump has an 'after' list"


def write(name, id_text):
    changed = list(lines)
    changed[ops[0]] = re.sub(r"(\bafter: *\[)[^\]]*", lambda m: m.group(1) + id_text, changed[ops[0]], count=1)
    open(name, "w").write("\n".join(changed))


write("cycle.yaml", "30")
write("dangling.yaml", "999999")
open("where", "w").write(str(ops[0] + 1))
PY
line=$(cat where)
refused 2 "$work/cycle.yaml:$line:[0-9]+: " verify --load "$work/cycle.yaml"
refused 2 "$work/dangling.yaml:$line:[0-9]+: " verify --load "$work/dangling.yaml"

# ---- control characters are shown, not sent: colours, titles, line ends, C1, what is not UTF-8 ----

raw=$'\e[31mx\a\n\x9b31m\xc2\x9b\xc3\xa9'
shown='\\x1b\[31mx\\x07\\n\\x9b31m\\xc2\\x9bé'
refused 2 "unknown command '$shown'" "$raw"
refused 2 "sim: unknown option '--$shown'" sim zero_offload "--$raw"
refused 2 "unknown system '$shown'" sim "$raw"
refused 2 "$shown/x.json: cannot be written" sim zero_offload "${tiny[@]}" --trace "$raw/x.json"
train "$shown: No such file" "$raw"
# clean FILES...: nothing in them but text.
clean() {
    "$python" - "$@" <<'PY' || fail "control characters reached the terminal: $(cat -v "$@")"
import sys

for name in sys.argv[1:]:
    text = open(name, encoding="utf-8").read()
    assert all(c.isprintable() or c == "\n" for c in text), name
PY
}
# Files and folders may be called that: reports name them, and JSON has what it can.
cp -r "$root/tests/data/gpt2-nano" "$raw"
printf '%s\n' 'name: small' 'cluster: autohete-1gpu' 'models: [autohete-2b]' 'systems: [zero_offload]' >"$raw.yaml"
cp "$text" "$raw.txt"
run 0 train in_memory --init "$raw" --data "$raw.txt" --steps 1 --checkpoint "$raw.c" --resume
clean out err
run 0 train in_memory --init "$raw" --data "$raw.txt" --steps 1 --json
[ "$(json out 'd["scenario"]["model"]["name"]')" = "$(printf '%b' "${shown//\\[/[}")" ] ||
    fail "the JSON's model: $(json out 'd["scenario"]["model"]')"
[ "$(json out '"x9b31m" in d["training"]["data"] and "x9b31m" in d["command"]')" = True ] || fail "the JSON lacks what is not UTF-8"
run 0 experiment "$raw.yaml" --out "$raw.d"
clean out
printf 'name: "a\\e[31m"\n' >"$raw.yaml"
refused 2 ".*key 'name': holds a control character" sim zero_offload --model "./$raw.yaml" --cluster local

# ---- jobs that do not fit, devices that are missing ----

refused 3 "OOM at .* on device 0: .*short by" sim zero_offload --model gpt-tiny --cluster local --device-memory 1MB
# A default that may be the reason is named; not where a value was given, or the states alone do not fit.
big=(--model llama-7b --cluster autohete-1gpu --batch 32)
refused 3 ".*short by [0-9.]* GB; micro-batches of 32 sequences are the default: --micro-batch 1 holds less$" sim zero_offload "${big[@]}"
refused 3 ".*short by [0-9.]* GB$" sim zero_offload "${big[@]}" --micro-batch 16
refused 3 ".*short by [0-9.]* GB$" sim in_memory "${big[@]}"
refused 3 "OOM at .* on device 0: .*short by" train in_memory --model gpt-tiny --data "$text" --device-memory 1kB
refused 3 "OOM at .* on device 0: .*short by" plan in_memory --model autohete-22b --cluster autohete-1gpu
refused 3 "cluster 'autohete-4gpu' has 4 devices, accelerators among them; several ranks train on emulated devices, under" train in_memory --model gpt-tiny --cluster autohete-4gpu --numerics fp32 --data "$text"
refused 3 "cluster 'autohete-1gpu' has the accelerator" train zero_offload_ckpt --model autohete-2b --cluster autohete-1gpu --data "$text"
run 3 sim in_memory --model autohete-22b --cluster autohete-1gpu --json
[ "$(json out 'd["status"], len(d["reason"]) > 0, d["memory"][0]["by_class"]["param"] > 0')" = "('oom', True, True)" ] ||
    fail "the JSON of an OOM has no status, reason and ledger"

# Memory that the system refuses: for our books, and for an arena. Sanitizers have books of their own.
little() {
    (
        ulimit -v "$1"
        refused 3 "${@:2}"
        exit "$failures"
    ) || failures=$((failures + 1))
}
many=(--model gpt-tiny --batch 8192 --micro-batch 1)
if [ -z "$sanitized" ]; then
    little 60000 "out of memory: [0-9]* bytes cannot be allocated" plan in_memory "${many[@]}" --cluster local
    little 60000 "out of memory: [0-9]* bytes cannot be allocated" sim in_memory "${many[@]}" --cluster local --json
    little 60000 "out of memory: [0-9]* bytes cannot be allocated" train in_memory "${many[@]}" --data "$text" --seq 32
    little 400000 "cannot map .* of address space for a memory arena" train in_memory --model gpt-tiny --data "$text" --steps 1
fi

# ---- files that cannot be written ----

refused 2 "$work/no/such/x.json: cannot be written" sim zero_offload "${tiny[@]}" --trace "$work/no/such/x.json"
refused 2 "$work: is a directory" sim zero_offload "${tiny[@]}" --dump "$work"
refused 1 "/dev/full: .*No space left" sim zero_offload "${tiny[@]}" --trace /dev/full
refused 1 "/dev/full: .*No space left" sim zero_offload "${tiny[@]}" --dump /dev/full
# Before anything runs: so many steps would take half an hour.
refused 2 "$work/no/such/l.csv: cannot be written" train in_memory "${tiny[@]}" --data "$text" --steps 100000 --losses "$work/no/such/l.csv"
for words in "list systems" "list systems --json" "sim zero_offload ${tiny[*]}" "--help" "sim --help"; do
    status=0
    # shellcheck disable=SC2086 # several words
    "$hetbench" $words >/dev/full 2>err || status=$?
    [ "$status" = 1 ] && grep -q "standard output cannot be written" err || fail "$words to a full disk: status $status, $(cat err)"
done
finish
