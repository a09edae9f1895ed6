#!/usr/bin/env bash
# Ranks without Open MPI: hetbench starts them and their messages go over sockets. Losses are those of ranks that mpirun started. A rank
# that is killed, and Ctrl-C, end all of them with one line.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
common=(--model llama-tiny --seq 16 --data "$text" --batch 8 --micro-batch 1)
mkdir path # of all tools but mpirun
for tool in bash sleep; do ln -s "$(command -v "$tool")" path/; done

while read -r system ranks options; do
    # shellcheck disable=SC2206 # words
    all=(train "$system" "${common[@]}" --ranks "$ranks" --steps 3 $options --losses)
    PATH=$work/path run 0 "${all[@]}" without.csv
    HT_LAUNCH=local run 0 "${all[@]}" local.csv
    cmp -s without.csv local.csv || fail "$system: HT_LAUNCH=local: $(paste without.csv local.csv)"
    "$hetbench" "${all[@]}" with.csv >out 2>err || fail "$system: $(cat err)"
    cmp -s with.csv local.csv || fail "$system: $(paste with.csv local.csv)"
done <<LIST
fsdp 3 --numerics bf16 --set l=4,3,1
sysx 2 --numerics fp16 --control rollback
dapple 4 --numerics fp32 --set pipelines=2,2
LIST

# ended WHAT STATUS PATTERN: the training has ended so.
ended() {
    local status=0
    wait "$pid" || status=$?
    [ "$status" = "$2" ] || fail "$1: status $status: $(cat err)"
    [ "$(grep -c . err)" = 1 ] && grep -Eq "^hetbench: .*$3" err || fail "$1: $(cat err)"
    # shellcheck disable=SC2086 # words
    gone 10 $ranks
}
# began: starts a training of minutes over three ranks, as process $pid with the processes $ranks.
began() {
    rm -f events
    HT_LAUNCH=local "$hetbench" train ddp "${common[@]}" --ranks 3 --steps 100000 --batch 9 --events events >out 2>err &
    pid=$!
    until grep -q step events 2>/dev/null || ! kill -0 "$pid"; do sleep 0.05; done
    ranks=$(ranks_of "$pid")
    [ "$(echo "$ranks" | wc -w)" = 3 ] || fail "the ranks are '$ranks'"
}
began
kill -KILL "$(echo "$ranks" | sed -n 2p)"
ended "a killed rank" 1 "rank 1 was killed by signal 9, which ends all of them"
began
kill -INT "$pid"
ended "Ctrl-C" 130 "interrupted"
finish
