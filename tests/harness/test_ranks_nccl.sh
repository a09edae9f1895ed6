#!/usr/bin/env bash
# Ranks with a GPU each that exchange tensors by NCCL: GPUs of threads (tests/support/fake_cuda.h), and a stand-in for NCCL between the
# processes (tests/support/nccl_on_cpu). --deterministic has the bits of CPU ranks; NCCL's own sums have them over two ranks, and over
# more come near them. Failures end all ranks in seconds, with one line.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
gpus=$build/hetbench_fake_gpus
export HT_NCCL=$build/libnccl_on_cpu.so
[ -x "$gpus" ] && [ -e "$HT_NCCL" ] || { echo "there is no $gpus or no $HT_NCCL"; exit 77; }
export HT_LAUNCH=local # which starts sooner than mpirun
cd "$work"
common=(--model "$llama_tiny" --seq 16 --data "$text" --steps 3)
needs_ranks "${common[@]:0:6}" --batch 8 --micro-batch 1

# by_nccl SYSTEM RANKS OPTIONS...: trains on CPU ranks, and on a GPU for each rank.
by_nccl() {
    local all=("$1" "${common[@]}" --ranks "$2" --micro-batch 1 "${@:3}")
    run 0 train "${all[@]}" --losses cpu.csv
    HT_FAKE_GPUS=$2 hetbench=$gpus run 0 train "${all[@]}" --backend cuda --losses nccl.csv
    grep -q 'messages by NCCL' out || fail "$*: not by NCCL: $(tail -n 3 out)"
    if [ "$2" = 2 ]; then
        cmp -s cpu.csv nccl.csv || fail "$* over two ranks: $(paste cpu.csv nccl.csv)"
        return
    fi
    HT_FAKE_GPUS=$2 hetbench=$gpus run 0 train "${all[@]}" --backend cuda --transport nccl --deterministic --losses ordered.csv
    cmp -s cpu.csv ordered.csv || fail "$* in the ranks' order: $(paste cpu.csv ordered.csv)"
    paste -d , cpu.csv nccl.csv | awk -F , 'NR > 1 { d = $2 - $4; if (d < 0) d = -d; if (!(d < 1e-3)) exit 1 }' ||
        fail "$*: far from the ranks' order: $(paste cpu.csv nccl.csv)"
    cmp -s cpu.csv nccl.csv || others="$others $1"
}
others=
lines=0
while read -r system ranks options; do
    lines=$((lines + 1))
    if [ -n "$sanitized" ] && [ $((lines % 3)) != 2 ]; then continue; fi # ten times slower
    # shellcheck disable=SC2086 # words
    by_nccl "$system" "$ranks" $options
done <<LIST
in_memory 2 --batch 8 --numerics fp32
ddp 3 --numerics fp32 --batch 9
fsdp 2 --batch 8 --numerics bf16 --set l=5,3
zero_offload 2 --batch 8 --numerics fp16 --control gate
zero3_offload 2 --batch 8 --numerics fp32
gpipe 3 --batch 8 --numerics fp32 --set pipelines=1,2 --set halves=8,5,3
dapple 4 --batch 8 --numerics bf16 --set pipelines=2,2 --set zero=2
autohet 4 --batch 8 --numerics fp32
sysx 2 --batch 8 --numerics fp16 --control rollback --clip 0.5
megatron_3d 2 --batch 8 --numerics fp32 --set tp=2 --set pp=1
cephalo 3 --batch 9 --numerics bf16
gpipe 2 --batch 8 --numerics bf16 --set tp=2 --set sequence=1
megatron_3d 4 --batch 8 --numerics fp32 --set tp=2 --set pp=2
dapple 4 --batch 8 --numerics bf16 --set widths=1,2,1 --set slices=1
autohet 4 --batch 8 --numerics fp32 --set tp=2
LIST
# Four parts: gpt-mini has the heads for it.
llama=("${common[@]:0:6}")
common[1]=gpt-mini
by_nccl megatron_3d 4 --batch 4 --numerics fp32 --set tp=4 --set pp=1
by_nccl gpipe 4 --batch 4 --numerics bf16 --set tp=4 --set sequence=1
gpt=("${common[@]:0:6}")
common[1]=$llama_tiny
case $others in *ddp*autohet*cephalo*) ;; *) fail "sums of NCCL in another order change only:$others" ;; esac

# ---- which transport ----
two=(ddp "${common[@]}" --ranks 2 --batch 8 --micro-batch 1 --backend cuda)
hetbench=$gpus
HT_FAKE_GPUS=1 run 0 train "${two[@]}"
grep -q 'messages through host memory' out || fail "on one GPU: $(tail -n 3 out)"
HT_FAKE_GPUS=1 refused 3 "--transport nccl: ranks 0 and 1 have the same GPU" train "${two[@]}" --transport nccl
HT_FAKE_GPUS=2 HT_NCCL=$work/none refused 3 "cannot open NCCL" train "${two[@]}" --transport nccl
HT_FAKE_GPUS=2 HT_NCCL=$work/none run 0 train "${two[@]}"
grep -q 'warning: messages between GPUs go through host memory: .*cannot open NCCL' err || fail "without NCCL: $(cat err)"
HT_FAKE_GPUS=2 refused 2 "--transport 'mpi' is not known" train "${two[@]}" --transport mpi
refused 2 "--transport: the job has one rank" train in_memory "${common[@]}" --backend cuda --transport host
refused 2 "--transport needs --backend cuda" train ddp "${common[@]}" --ranks 2 --transport host

# ---- failures ----
export HT_FAKE_GPUS=3
HT_FAKE_GPU_FULL=1 refused 3 "rank 1: the GPU does not give" train ddp "${common[@]}" --ranks 3 --batch 9 --micro-batch 1 --backend cuda
HT_NCCL_ON_CPU_FATE=1:5:broken refused 1 ".*rank 1: .*NCCL: .*the link is broken" \
    train ddp "${common[@]}" --ranks 3 --batch 9 --micro-batch 1 --backend cuda

# The others are told: they wait in NCCL's groups for a rank that has given up for another reason.
limit=60
for rank in 0 2; do
    HT_FAKE_GPU_FAILS=$rank:150 refused 1 ".*rank $rank: .*op [0-9]+ .*cudaErrorLaunchFailure: as told" \
        train ddp "${common[@]}" --ranks 3 --batch 9 --micro-batch 1 --backend cuda --steps 1000
done
# An abort that does not return, with kernels under way: 5 s later the rank's messages fail, and 5 s after its run has failed it leaves
# its streams to the driver. All end.
for rank in 0 1; do
    begin=$SECONDS
    HT_NCCL_ON_CPU_FATE=$rank:5:stuck refused 1 ".*rank $rank: .*NCCL: .*the link is broken" \
        train ddp "${common[@]}" --ranks 3 --batch 9 --micro-batch 1 --backend cuda
    [ $((SECONDS - begin)) -ge 5 ] || fail "rank $rank did not wait for an abort or for streams that are stuck"
done

# Within an exchange of a tensor-parallel part, by NCCL and through pinned memory: a rank without memory, and one that is killed. All
# ranks end in seconds, with one line that names it.
for tp in $([ -n "$sanitized" ] && echo 2 || echo 2 4); do
    for rank in 0 $((tp - 1)); do
        export HT_FAKE_GPUS=$tp
        [ $tp = 2 ] && some=("${llama[@]}") || some=("${gpt[@]}")
        some=(megatron_3d "${some[@]}" --numerics fp32 --batch 8 --micro-batch 1 --set pp=1 --backend cuda --steps 1000
            --ranks "$tp" --set "tp=$tp")
        HT_NCCL_ON_CPU_FATE=$rank:60:full refused 1 "rank $rank: .*NCCL: .*out of memory" train "${some[@]}"
        HT_NCCL_ON_CPU_FATE=$rank:60:broken refused 1 "rank $rank: .*NCCL: .*the link is broken" train "${some[@]}"
        HT_NCCL_ON_CPU_FATE=$rank:60:killed refused 1 "rank $rank was killed by signal 9, which ends all of them" train "${some[@]}"
        HT_FAKE_GPU_FATE=$rank:300:full refused 1 "rank $rank: .*op [0-9]+ \\([FBRb][^)]*\\): .*out of memory" \
            train "${some[@]}" --transport host
        HT_FAKE_GPU_FATE=$rank:300:killed refused 1 "rank $rank was killed by signal 9, which ends all of them" \
            train "${some[@]}" --transport host
    done
done
limit=
export HT_FAKE_GPUS=3

# began OPTIONS...: starts a training over three ranks, as process $pid with the processes $ranks, and lets it make steps.
began() {
    rm -f events
    "$gpus" train ddp "${common[@]:0:6}" --numerics fp32 --ranks 3 --batch 9 --micro-batch 1 --backend cuda --events events "$@" >out 2>err &
    pid=$!
    until [ -e events ] && [ "$(grep -c '"step"' events)" -ge 2 ] || ! kill -0 "$pid"; do sleep 0.05; done
    ranks=$(ranks_of "$pid")
    [ "$(echo "$ranks" | wc -w)" = 3 ] || fail "the ranks are '$ranks': $(cat err)"
}
for rank in 0 2; do
    began --steps 100000
    kill -KILL "$(echo "$ranks" | sed -n $((rank + 1))p)"
    status=0
    wait "$pid" || status=$?
    [ "$status" = 1 ] || fail "a killed rank: status $status"
    tail -n 1 err | grep -q "rank $rank was killed by signal 9, which ends all of them" || fail "a killed rank: $(cat err)"
    # shellcheck disable=SC2086 # words
    gone 10 $ranks
done

# HT_KILLS=N kills N trainings more: a rank and a moment that the seed draws, from before the ranks are connected on. Counts them on
# stderr, every 50.
killed=0
"$python" -c 'import random, sys
draw = random.Random(sys.argv[1])
for _ in range(int(sys.argv[2])): print(draw.randrange(3), round(draw.random() * 1.5, 3))' "$seed" "${HT_KILLS:-0}" >kills
while read -r rank after; do
    "$gpus" train ddp "${common[@]:0:6}" --numerics fp32 --ranks 3 --batch 9 --micro-batch 1 --backend cuda --steps 100000 >out 2>err &
    pid=$!
    until [ "$(ranks_of "$pid" | wc -w)" = 3 ] || ! kill -0 "$pid"; do sleep 0.01; done
    ranks=$(ranks_of "$pid")
    sleep "$after"
    kill -KILL "$(echo "$ranks" | sed -n $((rank + 1))p)"
    status=0
    (timeout 60 tail --pid="$pid" -f /dev/null || kill -KILL "$pid") & # ends with the training
    wait "$pid" || status=$?
    [ "$status" = 1 ] || fail "rank $rank killed after $after s: status $status: $(cat err)"
    # shellcheck disable=SC2086 # words
    gone 10 $ranks
    killed=$((killed + 1))
    [ $((killed % 50)) != 0 ] || echo "$killed of $HT_KILLS trainings killed: each ended, none hung" >&2
done <kills

# A rank that stands still for a while holds the others up, and no more.
steps=$([ -n "$sanitized" ] && echo 60 || echo 300)
began --steps $steps --transport nccl --deterministic --losses slow.csv
slow=$(echo "$ranks" | sed -n 2p)
kill -STOP "$slow" && sleep 1 && kill -CONT "$slow"
wait "$pid" || fail "a slow rank: $(cat err)"
hetbench=$build/hetbench run 0 train ddp "${common[@]:0:6}" --numerics fp32 --ranks 3 --batch 9 --micro-batch 1 --steps $steps --losses cpu.csv
cmp -s cpu.csv slow.csv || fail "a slow rank changes losses"
finish
