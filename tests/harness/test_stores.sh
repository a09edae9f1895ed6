#!/usr/bin/env bash
# Node stores: every layout goes on from what any other wrote; nodes are lost, files are damaged, ranks are killed.
#
#     test_stores.sh BUILD-DIRECTORY [--kills N] [--pairs N] [--reshards N|all]
#
# --kills: 3. --pairs: pairs of layouts that train, 3. --reshards: pairs of layouts of at most 8 ranks, 12; all: about 1,400. What is
# drawn goes by the seed (support.sh). In full: --kills 200 --pairs 60 --reshards all, an hour.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
kills=3 pairs=3 reshards=12
while [ $# -gt 1 ]; do
    case $2 in
    --kills) kills=${3:?--kills needs a number} && shift ;;
    --pairs) pairs=${3:?--pairs needs a number} && shift ;;
    --reshards) reshards=${3:?--reshards needs a number} && shift ;;
    esac
    shift
done
cd "$work"
without_mpirun
RANDOM=$seed
common=(--batch 4 --seq 16 --micro-batch 1 --data "$text")
needs_ranks "${common[@]}" --model gpt-mini
emulated_nodes 2 2 >nodes.yaml
memory=$(mktemp -d /dev/shm/hetbench-test-XXXXXX)
trap 'rm -rf "$work" "$memory"' EXIT

same() { cmp -s "$1" "$2" || fail "$3: $1 and $2 differ"; }

# relay NAME ARGUMENTS... -- PARTS...: by one rank in one piece; then each part, "SYSTEM WHERE..", one step further than the one
# before it, from its stores. The losses have the same bits.
relay() {
    local name=$1 args=() at=0 part
    shift
    while [ "$1" != -- ]; do
        args+=("$1")
        shift
    done
    shift
    run 0 train in_memory "${args[@]}" --steps $# --losses whole.csv
    rm -rf parts remote "$memory/parts"
    for part in "$@"; do
        at=$((at + 1))
        # shellcheck disable=SC2086 # words
        run 0 train $part "${args[@]}" --steps $at --losses part.csv --store parts --store-memory "$memory/parts" \
            --store-remote remote --resume
        head -n $((at + 1)) whole.csv >wanted
        same wanted part.csv "$name: $part, step $at"
    done
}
relay llama --model "$llama_tiny" "${common[@]}" -- in_memory "gpipe --ranks 2 --set halves=3,5" "fsdp --cluster nodes.yaml" "sysx --ranks 2" \
    "zero_offload --ranks 4"
run 0 list stores parts remote --check --json
[ "$(json out '[(v["step"], v["whole"]) for v in d["versions"]]')" = "[(5, True), (4, True), (3, False)]" ] || fail "list: $(cat out)"
relay gpt --model gpt-mini "${common[@]}" -- in_memory "in_memory_ckpt --ranks 4" "autohete --cluster nodes.yaml" \
    "zero_offload --ranks 4" in_memory

# Weights from stores are those of --save, and what a reshard has made gives them, too.
run 0 train in_memory --model gpt-mini "${common[@]}" --steps 5 --store parts --resume --save-dtype bf16 --save saved.safetensors
run 0 reshard parts remote --to 2,2,1 --per-node 2 --out made --check --save made.safetensors --save-dtype bf16
same saved.safetensors made.safetensors "weights from stores"

# With tensor parallelism losses depend on it, so a pair is held against staying in the first layout: a step, there and back, and two
# more. The second layout only lies on disk, so it may be any.
layouts=("gpipe --ranks 2 --set tp=2|1,2,1" "gpipe --ranks 4 --set tp=2|1,2,2" "dapple --ranks 4 --set tp=2 --set pipelines=2,2|2,2,1"
    "in_memory --ranks 4|4,1,1" "gpipe --ranks 2|1,1,2" "fsdp --ranks 3 --batch 3|3,1,1" "gpipe --ranks 4 --set tp=4|1,4,1"
    "zero_offload --ranks 2|2,1,1" "in_memory|1,1,1")
mapfile -t elsewhere < <(for d in {1..8}; do for t in 1 2 4; do for p in {1..4}; do
    [ $((d * t * p)) -gt 8 ] || echo "x|$d,$t,$p"; done; done; done)
for ((i = 0; i < pairs; i++)); do
    first=${layouts[RANDOM % ${#layouts[@]}]} second=${elsewhere[RANDOM % ${#elsewhere[@]}]}
    model=$([ $((i % 2)) = 0 ] && echo "$llama_tiny" || echo gpt-mini) numerics=$([ $((i / 2 % 2)) = 0 ] && echo fp32 || echo bf16)
    [[ "$first $second" != *,4,* ]] || model=gpt-mini # the Llama has two heads of keys
    rm -rf a b c
    # shellcheck disable=SC2206 # words
    args=(${first%|*} "${common[@]}" --model "$model" --numerics "$numerics")
    # shellcheck disable=SC2206 # the layout's batch comes last
    [[ $first != *--batch* ]] || args+=(--batch 3)
    run 0 train "${args[@]}" --steps 3 --losses stay.csv
    run 0 train "${args[@]}" --steps 1 --store a
    # shellcheck disable=SC2046 # no word or one
    run 0 reshard a --to "${second#*|}" --per-node $((1 + RANDOM % 3)) $([ $((RANDOM % 2)) = 0 ] || echo --zero1) --out b --check
    run 0 reshard b --to "${first#*|}" --out c --check
    run 0 train "${args[@]}" --steps 3 --losses back.csv --store c --resume
    same stay.csv back.csv "$model $numerics: ${first%|*}, through ${second#*|}, and back"
done
echo "$pairs pairs trained"

# Pairs of layouts (dp, tp, pp) of at most 8 ranks: there and back, each time read back and compared.
cat >llama.yaml <<YAML
{name: llama, arch: llama, layers: 8, width: 48, heads: 24, kv_heads: 24, ffn: 24, vocab: 256, max_seq: 8, tied: false, source: the tests}
YAML
cat >gpt.yaml <<YAML
{name: gpt, arch: gpt, layers: 8, width: 48, heads: 24, ffn: 48, vocab: 256, max_seq: 8, source: the tests}
YAML
sources=()
for arch in llama gpt; do for numerics in fp32 bf16; do
    run 0 train in_memory --model $arch.yaml --numerics $numerics --batch 2 --seq 8 --micro-batch 1 --data "$text" --steps 1 --store "$arch-$numerics"
    sources+=("$arch-$numerics")
done; done
mapfile -t all < <(for d in {1..8}; do for t in 1 2 3 4 6 8; do for p in {1..8}; do
    [ $((d * t * p)) -gt 8 ] || echo "$d,$t,$p"; done; done; done)
n=${#all[@]}
for ((i = 0; i < n * n; i++)); do
    [ "$reshards" = all ] || [ $((i * reshards / (n * n))) != $(((i + 1) * reshards / (n * n))) ] || continue
    a=${all[i / n]} b=${all[i % n]} zero=$([ $((RANDOM % 2)) = 0 ] || echo --zero1) from=${sources[RANDOM % 4]}
    rm -rf a b c
    # shellcheck disable=SC2086 # no word or one
    run 0 reshard "$from" --to "$a" $zero --out a --check --per-node 2
    run 0 reshard a --to "$b" --out b --check --per-node 3
    run 0 reshard b --to "$a" --out c --check
    run 0 reshard c --to 1,1,1 --save c.safetensors
    run 0 reshard "$from" --to 1,1,1 --save from.safetensors
    same from.safetensors c.safetensors "$from: $a to $b and back"
done

# Simulated on a cluster: node 0 has everything on a disk of 1 GB/s, and node 1 takes half of the ranks. Each node's rank reads all of
# the state, 12 bytes a parameter, so the disk reads it twice; node 1's share goes over a NIC that is faster.
cp -r llama-fp32 from
{
    emulated_nodes 2 1
    echo '    ssds: {type: {name: ssd, capacity: 1 TB, read: 1 GB/s, write: 1 GB/s, efficiency: 1, duplex: true, latency: 0 us, source: the test}, count: 1}'
} >disks.yaml
run 0 reshard from --to 2,1,1 --per-node 1 --cluster disks.yaml --json
[ "$(json out '(lambda p, t: p["own disk"]["bytes"] == p["peer"]["bytes"] and abs(t / (2 * p["peer"]["bytes"]) - 1) < 0.01)(d["paths"], d["simulated_ns"])')" = True ] ||
    fail "simulated: $(cat out)"
# Carried out under the emulated clock no copy is early.
run 0 reshard from --to 2,1,1 --per-node 1 --cluster disks.yaml --emulate 100 --json
[ "$(json out '(lambda e: (e["ns"] >= 0.999 * d["simulated_ns"], e["copies"] > 0))(d["emulated"])')" = "(True, True)" ] ||
    fail "emulated: $(cat out)"
refused 2 "--emulate: --cluster is missing beside it" reshard from --to 1,1,1 --emulate 10
refused 2 "--cluster: 'nodes' has 2 nodes; the stores and the layout have 3" reshard from --to 3,1,1 --per-node 1 --cluster disks.yaml
refused 2 "--remote-rate: --cluster is missing beside it" reshard from --to 1,1,1 --remote-rate 1GB/s

# A node is lost. Its replica suffices; of shards, only the remote store has what it had, and without that one line says what is
# missing. A damaged file is named and read from elsewhere.
replicas=(train gpipe --cluster nodes.yaml --set "pipelines=2,2" --model gpt-mini "${common[@]}")
run 0 "${replicas[@]}" --steps 3 --losses whole.csv
run 0 "${replicas[@]}" --steps 2 --store lost
rm -r lost/node-0001
run 0 "${replicas[@]}" --steps 3 --losses part.csv --store lost --resume
same whole.csv part.csv "a replica lost"
shards=(train fsdp --cluster nodes.yaml --model gpt-mini "${common[@]}")
run 0 "${shards[@]}" --steps 3 --losses whole.csv
run 0 "${shards[@]}" --steps 2 --store sharded --store-remote far
cp -r sharded kept
rm -r sharded/node-0001
refused 2 "sharded: no step is whole; of the newest, 2: unit 0: [0-9]+ elements of the param of wte, of part 0 of 1, are in no store" \
    "${shards[@]}" --steps 3 --store sharded --resume
rm -rf sharded && cp -r kept sharded && rm -r sharded/node-0001
run 0 "${shards[@]}" --steps 3 --losses part.csv --store sharded --store-remote far --resume
same whole.csv part.csv "shards lost"
# With a replica on another node, shards survive a node, too.
run 0 "${shards[@]}" --steps 2 --store doubled --replicas 1
rm -r doubled/node-0001
run 0 "${shards[@]}" --steps 3 --losses part.csv --store doubled --resume
same whole.csv part.csv "shards with replicas"
refused 2 "--replicas: 2 other nodes are asked for; the job has 2 nodes" "${shards[@]}" --steps 2 --store few --replicas 2

# damaged WHAT COMMAND: damages a file of node 0's newest step; the training goes on from the remote store and says one line
damaged() {
    rm -rf sharded far && cp -r kept sharded
    run 0 "${shards[@]}" --steps 2 --store sharded --store-remote far --resume
    rm -rf sharded far
    run 0 "${shards[@]}" --steps 2 --store sharded --store-remote far
    local file
    file=$(find sharded/node-0000/step-0000000002.* -name 'unit-0001.*' | sort | head -n 1)
    eval "$2"
    run 0 "${shards[@]}" --steps 3 --losses part.csv --store sharded --store-remote far --resume
    [ "$(wc -l <err)" = 1 ] && grep -Eq "^hetbench: warning: $file: $1; it is not used" err || fail "damaged: $(cat err)"
    same whole.csv part.csv "damaged: $2"
}
damaged "has the hash .*" 'printf "\377\001" | dd of="$file" bs=1 seek=700 conv=notrunc status=none'
damaged "has 600 bytes; .*" 'truncate -s 600 "$file"'
damaged "cannot be opened: .*" 'rm "$file"'

# Writing behind at 4 MB/s while steps take less: each save waits for the one before it, and one is in flight at most.
run 0 train in_memory --model gpt-mini "${common[@]}" --steps 4 --every 1 --store slow --store-memory "$memory/slow" --store-remote slow-remote \
    --store-remote-rate 4MB/s --json
[ "$(json out '(lambda s: (s["saved"], s["safe_step"], s["stall_s"] >= s["waited_s"] > 0 and s["written_s"] > s["bytes"] / 4e6 * 0.9))(d["training"]["stores"])')" = \
    "(4, 4, True)" ] || fail "a slow remote store: $(json out 'd["training"]["stores"]')"
[ "$(find "$memory/slow" slow -name 'step-*' | sed 's/.*step-0*//;s/[.].*//' | sort -n | tr '\n' ' ')" = "3 4 4 " ] || fail "kept: $(find slow "$memory/slow")"

# An old folder of checkpoints goes on in stores.
run 0 train in_memory --model gpt-mini "${common[@]}" --steps 3 --losses whole.csv
run 0 train in_memory --model gpt-mini "${common[@]}" --steps 1 --checkpoint old
run 0 train zero_offload --ranks 4 --model gpt-mini "${common[@]}" --steps 2 --checkpoint old --resume --store new
run 0 train in_memory --ranks 4 --model gpt-mini "${common[@]}" --steps 3 --losses part.csv --store new --resume
same whole.csv part.csv "a checkpoint in stores"
run 0 train in_memory --model gpt-mini "${common[@]}" --steps 3 --store new --resume
grep -q "^new is at step 3 already: no step was run" out || fail "at the last step: $(cat out)"

# What is wrong is one line.
refused 2 "--store: new holds a training; --resume goes on with it" train in_memory --model gpt-mini "${common[@]}" --steps 4 --store new
refused 2 "--store-memory: --store DIR is missing beside it" train in_memory --model gpt-mini "${common[@]}" --store-memory new
refused 2 "new: was made with --batch 4; this run has 8" train in_memory --model gpt-mini "${common[@]}" --batch 8 --steps 4 --store new --resume
refused 2 "new: is of another model: its arch is 0" train in_memory --model llama-tiny "${common[@]}" --steps 4 --store new --resume
refused 2 "none: holds no store" reshard none --to 1,1,1
refused 2 "--to: '1,1' is not a layout" reshard new --to 1,1
refused 2 ".* heads cannot be cut into 7 parts" reshard new --to 1,7,1
refused 2 "--check: --out DIR is missing beside it" reshard new --to 1,1,1 --check
refused 2 "reshard: expected --to dp,tp,pp or --save" reshard new
# Into what it reads: by any name, whether its node's folder is there or not.
ln -s new link
find new | sort >before
for out in new new/deep/er link ./none/../new parts/../new "$work/link/x"; do
    refused 2 "--out: $out.*" reshard new --to 1,1,1 --out "$out"
done
refused 2 "--out: ./new/node-0000 is in ./new/node-0000, which is read; expected a folder outside it" reshard ./new/node-0000 --to 1,1,1 --out ./new
find new | sort | diff before - || fail "a refused reshard wrote into what it reads"
# Into a folder with another run's step, which --resume would take, but again into its own.
run 0 reshard new --to 1,1,1 --out again --check
run 0 reshard new --to 2,1,1 --out again --check
run 0 train in_memory --model gpt-mini "${common[@]}" --steps 4 --store again --resume
find again | sort >before
refused 2 "--out: again holds step 4, not the one to be written; expected another folder" reshard new --to 1,1,1 --out again
find again | sort | diff before - || fail "a refused reshard wrote into another run's folder"
refused 3 "node 0: two steps in --store-memory take .* GB, and training .* GB; the node's memory has " train in_memory --model gpt-mini \
    "${common[@]}" --host-memory 1MB --store full --store-memory "$memory/full"

# A disk that is full, in a mount of its own where the machine allows that: one line, and the step before it is whole.
mkdir disk
cat >on_disk <<'SH'
mount -t tmpfs -o size=7m disk disk || exit 77
"$@" >out 2>err
status=$?
rm -rf stored && cp -r disk stored
exit $status
SH
status=0
unshare -rm bash on_disk "$hetbench" train in_memory --model gpt-mini "${common[@]}" --steps 3 --every 1 --keep 3 --store disk 2>why || status=$?
if [ "$status" = 77 ] || grep -q "^unshare:" why; then
    echo "skipped: a full disk: $(cat why)"
else
    [ "$status" = 1 ] && [ "$(wc -l <err)" = 1 ] && grep -q "No space left on device" err || fail "a full disk: status $status: $(cat err)"
    run 0 train in_memory --model gpt-mini "${common[@]}" --steps 3 --losses part.csv --store stored --resume
    same whole.csv part.csv "after the disk was full"
fi

# Ranks are killed at random moments: each time the training goes on from a whole step, and never from an older one than before; where
# a node's memory goes with it, from no older one than was on disk.
killed=(train fsdp --cluster nodes.yaml --model gpt-mini "${common[@]}" --every 1 --store killed --store-memory "$memory/killed" --resume)
# newest_of DIRECTORIES...: the newest step that their stores have whole; 0: none.
newest_of() {
    local dirs=() dir
    for dir in "$@"; do [ ! -d "$dir" ] || dirs+=("$dir"); done
    "$hetbench" list stores "${dirs[@]}" --check --json >listed 2>/dev/null || { echo 0 && return; }
    json listed 'max([v["step"] for v in d["versions"] if v["whole"]] or [0])'
}
# unfinished: a save is under way: a file is not renamed yet, or a step lacks a rank's manifest.
unfinished() {
    local version
    [ -z "$(find killed "$memory/killed" -name '*.partial*' -print -quit 2>/dev/null)" ] || return 0
    for version in "$memory"/killed/node-*/step-* killed/node-*/step-*; do
        [ ! -d "$version" ] || [ "$(find "$version" -name 'rank-*.json' | wc -l)" = 2 ] || return 0
    done
    return 1
}
before=0 on_disk=0 in_save=0
for ((i = 0; i < kills; i++)); do
    "$hetbench" "${killed[@]}" --steps 100000 >out 2>err &
    pid=$!
    for ((k = 0; k < 600; k++)); do
        sleep 0.1
        [ "$(find "$memory/killed" -name 'rank-*.json' 2>/dev/null | wc -l)" -ge 4 ] && [ -n "$(ranks_of "$pid")" ] && break
    done
    sleep "0.$((RANDOM % 9))$((RANDOM % 9))"
    rank=$(ranks_of "$pid" | shuf -n 1 --random-source=<(yes "$i"))
    [ -n "$rank" ] && kill -KILL "$rank" 2>/dev/null || fail "kill $i: no rank is there: $(cat err)"
    wait "$pid" || true
    unfinished && in_save=$((in_save + 1))
    [ $((i % 2)) = 0 ] || rm -rf "$memory/killed/node-0001" # the node went down with it
    newest=$(newest_of killed "$memory/killed")
    [ "$newest" -gt 0 ] && [ "$newest" -ge $((i % 2 ? on_disk : before)) ] || fail "kill $i: the newest whole step went from $before, on disk $on_disk, to $newest"
    before=$newest on_disk=$(newest_of killed)
    [ $((i % 25)) != 24 ] || echo "$((i + 1)) kills up to step $before, $in_save of them in a save"
done
run 0 train in_memory --model gpt-mini "${common[@]}" --steps $((before + 2)) --losses whole.csv
run 0 "${killed[@]}" --steps $((before + 2)) --losses part.csv
same whole.csv part.csv "losses after $kills kills"
echo "$kills kills up to step $before, $in_save of them in a save"
finish
