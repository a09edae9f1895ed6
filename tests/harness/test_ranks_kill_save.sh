#!/usr/bin/env bash
# A training over ranks that share states (ZeRO-1, ZeRO-2), with stages that end inside a block or tensor parallelism, saves each second
# step and is killed at any moment: one of its ranks, its launcher, or all at once. It loses no complete checkpoint and goes on in another
# shape each time. What has gone through all shapes is what one rank has that was never stopped: to the bit where no sum is cut.
#
#     test_ranks_kill_save.sh BUILD-DIRECTORY [--kills N]     4, and half as many with sums that are cut; a longer test takes some 3 s each
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
kills=4
[ "${2:-}" != --kills ] || kills=${3:?--kills needs a number}
cd "$work"
small_llama 4 | sed 's/kv_heads: 1/kv_heads: 2/' >llama.yaml
common=(--model llama.yaml --batch 2 --micro-batch 1 --seq 16 --data "$text" --numerics fp32)
needs_ranks "${common[@]}"
RANDOM=$seed
slow=$([ -n "$sanitized" ] && echo 5 || echo 1)

# One micro-batch a pipeline and no sum that is cut; and the same with such sums.
whole=('dapple --ranks 4 --set pipelines=2,2 --set zero=1' 'gpipe --ranks 3 --set pipelines=1,2 --set zero=1 --set halves=8,5,3'
    'dapple --ranks 6 --set pipelines=3,3 --set zero=2 --set halves=1,4,3 --set recompute=1')
cut=('dapple --ranks 4 --set pipelines=2,2 --set tp=2 --set zero=2' 'gpipe --ranks 8 --set pipelines=4,4 --set tp=2 --set zero=1 --set halves=3,5'
    'dapple --ranks 2 --set pipelines=1,1 --set zero=1')

job() { grep -lzxF "HETBENCH_TEST=$work" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 || true; }
# shellcheck disable=SC2046 # words
trap 'kill -KILL $(job) 2>/dev/null || true; rm -rf "$work"' EXIT
newest() { { find "$1" -maxdepth 1 -name 'step-*' -printf '%f\n' 2>/dev/null || true; } | sed 's/step-0*//' | sort -n | tail -n 1; }

# left_over NAME: the folder has a checkpoint that is being written or removed.
left_over() { compgen -G "$1/.partial-*" >/dev/null || compgen -G "$1/.removed-*" >/dev/null; }

# kill_one PID: kills one rank of the launcher's, or the launcher, or all of the job.
kill_one() {
    local victims
    case $((RANDOM % 4)) in
    0) victims=$1 ;;
    1) victims=$(job) ;;
    *) victims=$(ranks_of "$1" | shuf -n 1 --random-source=<(yes "$RANDOM")) ;;
    esac
    # shellcheck disable=SC2086 # words
    kill -KILL ${victims:-$1} 2>/dev/null || true
}

# killed NAME SHAPES...: kills trainings into the folder NAME; sets $before to the step of the newest checkpoint.
killed() {
    local name=$1 i pid now tenths moved=0 in_save=0
    shift
    local shapes=("$@")
    before=0
    mkdir "$name"
    for ((i = 0; i < kills; i++)); do
        # shellcheck disable=SC2086 # words
        HETBENCH_TEST=$work "$hetbench" train ${shapes[i % $#]} "${common[@]}" --steps 1000000 --checkpoint "$name" --every 2 --resume \
            >killed.out 2>killed.err &
        pid=$!
        # Until it has saved; then at any moment of the next steps, or while it saves.
        for ((tenths = 0; tenths < 200 * slow; tenths++)); do
            now=$(newest "$name")
            [ "${now:-0}" -le "$before" ] || break
            sleep 0.1
        done
        if ((RANDOM % 2)); then
            sleep "0.$(printf '%03d' $((RANDOM % 200)))"
        else
            while kill -0 "$pid" 2>/dev/null && ! left_over "$name"; do :; done
            sleep "0.00$((RANDOM % 6))"
        fi
        kill_one "$pid"
        wait "$pid" 2>/dev/null || true
        for ((tenths = 0; tenths < 300 * slow; tenths++)); do
            [ -n "$(job)" ] || break
            sleep 0.1
        done
        [ -z "$(job)" ] || fail "$name, kill $i: processes are left"
        if grep -Ev 'holds no checkpoint: beginning|s/step|rank [0-9]+ (is gone|was killed by signal 9|ended without a report)' killed.err; then
            fail "$name, kill $i: ${shapes[i % $#]} complained"
        fi
        ! left_over "$name" || in_save=$((in_save + 1))
        now=$(newest "$name")
        [ "${now:-0}" -ge "$before" ] || fail "$name, kill $i: the newest checkpoint went from step $before to $now"
        [ "${now:-0}" -le "$before" ] || moved=$((moved + 1))
        before=${now:-0}
    done
    echo "$name: $kills kills up to step $before, $in_save of them while a checkpoint was written or removed"
    [ "$moved" = "$kills" ] || fail "$name: $((kills - moved)) of $kills trainings saved nothing"
}

# goes_on NAME: in another shape, beside the whole training in one piece.
goes_on() {
    local end=$((before + 4))
    run 0 train in_memory "${common[@]}" --steps $end --losses whole.csv --save whole.safetensors --save-dtype f32
    run 0 train gpipe --ranks 3 --set halves=3,2,3 "${common[@]}" --steps $end --checkpoint "$1" --resume --losses resumed.csv \
        --save last.safetensors --save-dtype f32
    ! left_over "$1" || fail "$1: leftovers of kills are not swept"
}

killed whole "${whole[@]}"
goes_on whole
cmp -s whole.csv resumed.csv || fail "losses after $kills kills: $(paste whole.csv resumed.csv | tail -n 4)"
cmp -s whole.safetensors last.safetensors || fail "weights after $kills kills differ from those of a training never stopped"
kills=$(((kills + 1) / 2))
killed cut "${cut[@]}"
goes_on cut
near 1e-4 whole.csv resumed.csv
finish
