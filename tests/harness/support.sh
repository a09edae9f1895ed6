# Helpers of the command-line tests: sourced by tests/harness/test_*.sh, which ctest calls with the build directory.
# shellcheck shell=bash
# shellcheck disable=SC2034 # used by those who source this

[ $# -ge 1 ] || {
    echo "usage: $0 BUILD-DIRECTORY" >&2
    exit 2
}
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
hetbench=$build/hetbench
[ -x "$hetbench" ] || {
    echo "$hetbench is not built"
    exit 1
}
# A build with a sanitizer computes the same, but its durations say nothing.
sanitized=$(sed -n 's/^HT_SANITIZE:STRING=//p' "$build/CMakeCache.txt")
text=$root/tests/data/kjv-200k.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3)

# Tests that repeat one check draw some of the cases: the same ones each time, others with HT_SEED=N, others each time with
# HT_SEED=random, which prints its number; HT_FULL=1 takes all.
seed=${HT_SEED:-1}
[ "$seed" != random ] || seed=$RANDOM

# drawn N WORDS...: N of the words, drawn by the seed, in their order; all with HT_FULL=1.
drawn() {
    local n=$1
    shift
    [ "${HT_FULL:-0}" = 0 ] || n=$#
    printf '%s\n' "$@" | "$python" -c 'import random, sys
words = sys.stdin.read().split()
print(*[words[i] for i in sorted(random.Random(sys.argv[1]).sample(range(len(words)), int(sys.argv[2])))])' "$seed" "$n"
}

fail() {
    printf 'FAILED: %s\n' "$*"
    failures=$((failures + 1))
}

# run STATUS ARGUMENTS...: runs hetbench; output in $work/out and $work/err, which are shown when the status is another. No longer
# than $limit seconds, where that is set; then the status is 124 or 137.
run() {
    local expected=$1 status=0
    shift
    ${limit:+timeout -k 5 "$limit"} "$hetbench" "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ "$status" != "$expected" ]; then
        fail "hetbench $*: status $status, expected $expected"
        tail -n 20 "$work/out" "$work/err"
    fi
}

# refused STATUS PATTERN ARGUMENTS...: ends with the status and says why in one line that matches the pattern. What takes over two
# seconds, as reading the data may on a loaded machine, shows progress before it.
refused() {
    local expected=$1 pattern=$2
    shift 2
    run "$expected" "$@"
    sed -i -E '/^(checking|reproduce: [0-9]+ of) |^[a-z0-9_]+: (planning( and simulating)?|drawing), [0-9]+ s$/d' "$work/err"
    if [ "$(wc -l <"$work/err")" != 1 ]; then
        fail "hetbench $*: expected one line on standard error, found $(wc -l <"$work/err")"
        cat "$work/err"
    elif ! grep -Eq -- "^hetbench: $pattern" "$work/err"; then
        fail "hetbench $*: expected '$pattern'"
        cat "$work/err"
    fi
}

# needs_ranks ARGUMENTS...: skips the test where several ranks cannot be started; the arguments train for a step.
needs_ranks() {
    if "$hetbench" train in_memory "$@" --ranks 2 --steps 1 >"$work/out" 2>"$work/err"; then return; fi
    if grep -Eq "^hetbench: (this build has no MPI|mpirun is not installed)" "$work/err"; then
        echo "skipped: $(cat "$work/err")"
        exit 77
    fi
    fail "two ranks: $(cat "$work/err")"
}

# Four blocks of Llama; half as wide under a sanitizer, which sees the same accesses in half of the time.
llama_tiny=llama-tiny
if [ -n "$sanitized" ]; then
    llama_tiny=$work/llama-mini.yaml
    cat >"$llama_tiny" <<YAML
{name: llama-mini, arch: llama, layers: 4, width: 64, heads: 4, kv_heads: 2, ffn: 176, vocab: 256, max_seq: 64, source: the tests}
YAML
fi

# without_mpirun: ranks begin without mpirun and send over sockets from here on, in half of the processor time. For tests of what ranks
# compute; test_ranks.sh, test_ranks_pipelines.sh and others have the same messages by MPI, test_ranks_local.sh compares both.
without_mpirun() { export HT_LAUNCH=local; }

# numerics_of MODEL: fp32 and bf16; one of them under a sanitizer, ten times slower, but both over several models.
numerics_of() {
    [ -n "$sanitized" ] || { echo fp32 bf16 && return; }
    case $1 in gpt | bert) echo fp32 ;; *) echo bf16 ;; esac
}

# emulated_nodes NODES DEVICES: a cluster file of that many machines with so many small devices each, all of them emulated here.
emulated_nodes() {
    cat <<YAML
name: nodes
source: emulated nodes on one machine
nodes:
  - count: $1
    cpu: {name: host, cores: $((2 * $2)), dram: 16 GB/s, dram_efficiency: 0.7, core_flops: 30 GFLOP/s,
          gemm_efficiency: 0.6, source: declared}
    ram: 1 GB
    gpus:
      - type: {name: core, memory: 64 MB, fp32: 30 GFLOP/s, memory_bandwidth: 8 GB/s, gemm_efficiency: 0.6,
               memory_efficiency: 0.7, launch: 1 us, cores: 1, source: declared}
        count: $2
    pcie: local-memcpy
    nic: {name: messages, bandwidth: 4 GB/s, efficiency: 0.8, duplex: true, latency: 10 us, source: declared}
YAML
}

# small_llama BLOCKS: a model file, of blocks so small that eight ranks are no burden.
small_llama() {
    cat <<YAML
{name: llama-$1, arch: llama, layers: $1, width: 32, heads: 2, kv_heads: 1, ffn: 88, vocab: 256, max_seq: 16, source: the tests}
YAML
}

# mpirun_of PID, ranks_of PID: mpirun and the processes of hetbench below it, by rank. It is below the launcher PID's keeper.
mpirun_of() { for p in $(pgrep -P "$1"); do pgrep -P "$p" || true; done; }
ranks_of() {
    local p q
    for q in $(mpirun_of "$1"); do
        for p in $(pgrep -P "$q"); do echo "$(rank_of "$p") $p"; done
    done | sort -n | cut -d' ' -f2
}
rank_of() { { tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p'; } 2>/dev/null || true; }

# gone SECONDS PIDS...: none of the processes is there any more after so long.
gone() {
    local tenths=$((10 * $1)) p
    shift
    for p in "$@"; do
        while kill -0 "$p" 2>/dev/null && [ $((tenths--)) -gt 0 ]; do sleep 0.1; done
        ! kill -0 "$p" 2>/dev/null || fail "process $p is still there"
    done
}

# shm_left WHAT: no file is in /dev/shm that was not in $shm, its list at the start, or soon none is: other processes have files there
# for a moment. What is left is said once.
shm_left() {
    local new
    for _ in $(seq 50); do
        new=$(find /dev/shm -path "/dev/shm/hetbench-test-*" -prune -o -print | sort | comm -13 <(echo "$shm") -)
        [ -n "$new" ] || return 0
        sleep 0.1
    done
    fail "$1: left in /dev/shm: $new"
    shm=$(find /dev/shm | sort)
}

# near BOUND A B: losses of the same steps, in two CSV files, differ by no more.
near() {
    "$python" - "$@" <<'PY' || fail "not within $1: $(paste "$2" "$3")"
import sys
a, b = ([float(line.split(",")[1]) for line in list(open(name))[1:]] for name in sys.argv[2:])
sys.exit(not (len(a) == len(b) > 0 and all(abs(x - y) <= float(sys.argv[1]) for x, y in zip(a, b))))
PY
}

# json FILE EXPRESSION: a value of a JSON document, d, as Python sees it.
json() { "$python" -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"; }

finish() {
    if [ "$failures" != 0 ]; then
        echo "$failures failed"
        exit 1
    fi
    echo "all passed"
}
