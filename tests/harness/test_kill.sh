#!/usr/bin/env bash
# Killed at any moment, a training leaves its last complete checkpoint and goes on from there to the same losses and weights:
# in three systems by turns, in 16-bit numerics with a final check that skips and clips. Killed while it saves a model over an older one,
# it leaves one of the two.
#
#     test_kill.sh BUILD-DIRECTORY [--kills N] [--saves N]     30 and 8; a longer test takes some 0.3 s each
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
kills=30 saves=8
while [ $# -gt 1 ]; do
    case $2 in
    --kills) kills=${3:?--kills needs a number} ;;
    --saves) saves=${3:?--saves needs a number} ;;
    esac
    shift 2
done
cd "$work"
RANDOM=20
systems=(in_memory zero_offload autohete)
controls=(rollback gate gate rollback)

# Steps that overflow: most of them early, for the first kills come early. Each halves the loss scale, so that there must not
# be many.
faults=()
for ((i = 1; i <= 14; i++)); do faults+=(--inject-overflow "$((i * i * i + RANDOM % 20))":$((RANDOM % 4))); done

# killed NAME ARGUMENTS...: kills trainings into the folder NAME; sets $before to the step of the newest checkpoint.
killed() {
    local name=$1 i pid newest done=0 in_save=0
    shift
    before=0
    mkdir -p "$name" # the first kill may come before the training makes it
    for ((i = 0; i < kills; i++)); do
        "$hetbench" train "${systems[i % 3]}" "$@" --control "${controls[i % 4]}" --steps 1000000 --checkpoint "$name" --every 2 --resume \
            >killed.out 2>killed.err &
        pid=$!
        sleep "0.$(printf '%03d' $((40 + RANDOM % 400)))"
        kill -KILL "$pid" && done=$((done + 1))
        wait "$pid" 2>/dev/null || true
        if grep -v 'holds no checkpoint: beginning\|s/step' killed.err; then fail "kill $i: the run before it complained"; fi
        [ -z "$(find "$name" -maxdepth 1 \( -name '.partial-*' -o -name '.removed-*' \))" ] || in_save=$((in_save + 1))
        newest=$(find "$name" -maxdepth 1 -name 'step-*' -printf '%f\n' | sed 's/step-0*//' | sort -n | tail -n 1)
        [ "${newest:-0}" -ge "$before" ] || fail "kill $i: the newest checkpoint went from step $before to $newest"
        before=${newest:-0}
    done
    echo "$name: $done kills up to step $before, $in_save of them while a checkpoint was written or removed"
    [ "$done" = "$kills" ] && [ "$before" -gt 0 ] || fail "$name: the kills came too early or too late"
}

# same_as_never_stopped NAME ARGUMENTS...: 20 steps more, beside the whole training in one piece.
same_as_never_stopped() {
    local name=$1 end=$((before + 20))
    shift
    run 0 train in_memory "$@" --control gate --steps "$end" --losses whole.csv --save whole.safetensors --save-dtype f32 --json
    skipped=$(json out 'd["control"]["skipped"]')
    [ "$skipped" -gt 0 ] || fail "$name: no step was skipped"
    scale=$(json out 'd["control"]["loss_scale_next"]')
    run 0 train zero_offload "$@" --control rollback --steps "$end" --checkpoint "$name" --resume --losses resumed.csv --save last.safetensors \
        --save-dtype f32 --json
    [ "$(json out 'd["control"]["loss_scale_next"]')" = "$scale" ] || fail "$name: the loss scale is not that of a training never stopped"
    cmp -s whole.csv resumed.csv || fail "$name: losses after $kills kills differ from those of a training never stopped"
    cmp -s whole.safetensors last.safetensors || fail "$name: weights after $kills kills differ from those of a training never stopped"
    [ -z "$(find "$name" -maxdepth 1 \( -name '.partial-*' -o -name '.removed-*' \))" ] || fail "$name: leftovers of kills are not swept"
    echo "$name: $skipped steps of $end skipped, loss scale $scale; losses and weights as if never stopped"
}

nano=(--init "$root/tests/data/gpt2-nano" --batch 4 --micro-batch 2 --data "$text" --device-memory 64MB --numerics fp16 --clip 0.5
    "${faults[@]}")
killed fp16 "${nano[@]}"
same_as_never_stopped fp16 "${nano[@]}"

# One of two models, in one file or in shards, over the other; the moments are spread over the time that a save was seen to take.
give() { train=(train in_memory --batch 2 --data "$text" --steps 1 --lr 0 --init "$1" --save "$2" "${@:3}"); }
run 0 train in_memory --batch 2 --data "$text" --steps 1 --lr 0.1 --init "$root/tests/data/gpt2-nano" --save model-1
run 0 train in_memory --batch 2 --data "$text" --steps 1 --lr 0.2 --init "$root/tests/data/gpt2-nano" --save model-0
cp -r model-0 saved
unfinished=0
for ((i = 1; i <= saves; i++)); do
    give "model-$((i % 2))" saved --save-shard "$((7 + 12 * (RANDOM % 3)))kB"
    "$hetbench" "${train[@]}" >killed.out 2>killed.err &
    pid=$!
    # Until it writes; then at once, or up to a few ms later.
    while kill -0 "$pid" 2>/dev/null && [ -z "$(find saved -name '*.partial' -print -quit)" ]; do :; done
    if ((RANDOM % 2)); then sleep "0.00$((RANDOM % 4))"; fi
    if kill -KILL "$pid" 2>/dev/null; then unfinished=$((unfinished + 1)); fi
    wait "$pid" 2>/dev/null || true
    give saved seen
    run 0 "${train[@]}"
    cmp -s seen/model.safetensors model-0/model.safetensors || cmp -s seen/model.safetensors model-1/model.safetensors ||
        fail "save $i: neither the old model nor the new one"
done
give model-1 saved --save-shard 19kB
run 0 "${train[@]}"
give saved seen
run 0 "${train[@]}"
cmp -s seen/model.safetensors model-1/model.safetensors || fail "a save after $saves kills"
[ "$(find saved -type f | wc -l)" = "$(("$(json saved/model.safetensors.index.json 'len(set(d["weight_map"].values()))')" + 2))" ] ||
    fail "leftovers of killed saves: $(ls saved)"
echo "$unfinished of $saves saves killed"
finish
