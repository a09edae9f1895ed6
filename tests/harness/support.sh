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

fail() {
    printf 'FAILED: %s\n' "$*"
    failures=$((failures + 1))
}

# run STATUS ARGUMENTS...: runs hetbench; output in $work/out and $work/err, which are shown when the status is another.
run() {
    local expected=$1 status=0
    shift
    "$hetbench" "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ "$status" != "$expected" ]; then
        fail "hetbench $*: status $status, expected $expected"
        tail -n 20 "$work/out" "$work/err"
    fi
}

# refused STATUS PATTERN ARGUMENTS...: ends with the status and says why in one line that matches the pattern.
refused() {
    local expected=$1 pattern=$2
    shift 2
    run "$expected" "$@"
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

# json FILE EXPRESSION: a value of a JSON document, d, as Python sees it.
json() { "$python" -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"; }

finish() {
    if [ "$failures" != 0 ]; then
        echo "$failures failed"
        exit 1
    fi
    echo "all passed"
}
