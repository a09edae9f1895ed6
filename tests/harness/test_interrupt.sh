#!/usr/bin/env bash
# Ctrl-C stops cleanly: status 130, what was done is reported, and no file is left half-written.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

# interrupt ARGUMENTS...: starts hetbench, interrupts it after two seconds, checks status and files.
interrupt() {
    local status=0 pid
    mkdir -p files
    # A background job of a shell ignores SIGINT unless it is told otherwise; Python resets it.
    "$python" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$hetbench" "$@" >out 2>err &
    pid=$!
    sleep 2
    kill -INT "$pid" 2>/dev/null || fail "$1 had already ended"
    wait "$pid" || status=$?
    [ "$status" = 130 ] || fail "$1: status $status after Ctrl-C, expected 130"
    [ -z "$(ls files)" ] || fail "$1: Ctrl-C left $(ls files)"
    tail -n 1 err | grep -q '^hetbench: .*interrupted' || fail "$1: does not say that it was interrupted: $(cat err)"
}

interrupt train zero_offload --model gpt-mini --batch 4 --data "$text" --steps 100000 --device-memory 100MB \
    --trace files/t.json --losses files/l.csv --json
[ "$(json out 'd["status"], 0 < d["training"]["steps_done"] == len(d["losses"]) < 100000')" = "('interrupted', True)" ] ||
    fail "an interrupted training does not report the steps that were done"
interrupt sim zero_offload --model autohete-2b --cluster autohete-1gpu --batch 64 --micro-batch 1 --device-memory 40GB \
    --iterations 2000 --trace files/t.json
finish
