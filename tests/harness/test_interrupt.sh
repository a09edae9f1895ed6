#!/usr/bin/env bash
# Ctrl-C and a hangup stop cleanly: status 130, what was done is reported, and no file is left half-written.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

# interrupt SIGNAL ARGUMENTS...: starts hetbench, interrupts it after two seconds, checks status and files.
interrupt() {
    local status=0 pid signal=$1
    shift
    mkdir -p files
    # A background job of a shell ignores SIGINT unless it is told otherwise; Python resets it.
    "$python" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$hetbench" "$@" >out 2>err &
    pid=$!
    sleep 2
    kill "-$signal" "$pid" 2>/dev/null || fail "$1 had already ended"
    wait "$pid" || status=$?
    [ "$status" = 130 ] || fail "$1: status $status after SIG$signal, expected 130"
    [ -z "$(ls files)" ] || fail "$1: SIG$signal left $(ls files)"
    tail -n 1 err | grep -q '^hetbench: .*interrupted' || fail "$1: does not say that it was interrupted: $(cat err)"
}

interrupt INT train zero_offload --model gpt-mini --batch 4 --data "$text" --steps 100000 --device-memory 100MB \
    --trace files/t.json --losses files/l.csv --json
[ "$(json out 'd["status"], 0 < d["training"]["steps_done"] == len(d["losses"]) < 100000')" = "('interrupted', True)" ] ||
    fail "an interrupted training does not report the steps that were done"
interrupt HUP sim zero_offload --every-iteration --model autohete-2b --cluster autohete-1gpu --batch 64 --micro-batch 1 --device-memory 40GB \
    --iterations 2000 --trace files/t.json

# Planners that look at no candidates say that they go on, and stop, too: each takes minutes for 10,000 layers.
cat >config.json <<'JSON'
{"model_type": "llama", "hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 10000, "vocab_size": 1000,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false, "hidden_act": "silu"}
JSON
mkdir deep && mv config.json deep
for system in capuchin autohete_period; do
    interrupt INT plan $system --model deep/config.json --gpus a100-80gb:1 --ram 2TB --batch 8 --dump files/graph.yaml
done

# compare and maxsize keep the rows that are finished, and say that they are a part. stop ARGUMENTS...: interrupts once the progress, which
# a terminal has every 0.2 s, shows a finished row.
stop() {
    local status=0
    "$python" - "$hetbench" "$@" >out 2>err <<'PY' || status=$?
import os, pty, re, signal, subprocess, sys

ours, theirs = pty.openpty()
p = subprocess.Popen(sys.argv[1:], stderr=theirs, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
os.close(theirs)
said, sent = b"", False
try:
    while part := os.read(ours, 4096):
        said += part
        if not sent and re.search(rb": [1-9][0-9]* of [0-9]+ rows", said):
            p.send_signal(signal.SIGINT)
            sent = True
except OSError: # the terminal's other end is closed
    pass
sys.stderr.write(re.sub(r".*\r(\x1b\[K)?", "", said.decode().replace("\r\n", "\n")))
sys.exit(p.wait())
PY
    [ "$status" = 130 ] || fail "$1: status $status after SIGINT, expected 130: $(cat err)"
}
stop compare --models 'autohete-*' --systems zero_offload,zero_offload_ckpt --cluster autohete-1gpu --iterations 20000 --out part
grep -Eq '^hetbench: interrupted after [1-9][0-9]* of [0-9]+ rows; part has the finished rows$' err || fail "compare: Ctrl-C says $(cat err)"
grep -Eq '^partial: interrupted after [1-9][0-9]* of [0-9]+ rows' out || fail "compare: the table does not say that it is a part: $(cat out)"
[ "$(json part/compare.json 'd["complete"], all(r["status"] for r in d["rows"]), len(d["rows"])')" = \
    "(False, True, $(($(wc -l <part/compare.csv) - 1)))" ] || fail "compare: Ctrl-C left other rows: $(cat part/compare.csv)"
stop maxsize --of batch --models 'autohete-*' --cluster autohete-4gpu --json
[ "$(json out 'd["complete"], len(d["rows"]) > 0')" = "(False, True)" ] || fail "maxsize: Ctrl-C printed $(cat out)"

# A hangup that is ignored at the start, as under nohup, stays ignored.
(
    trap '' HUP
    exec "$hetbench" train in_memory --model gpt-mini --batch 4 --data "$text" --steps 100000 >out 2>err
) &
pid=$!
until grep -q '^SigCgt:.*4[0-9a-f][0-9a-f][23]$' "/proc/$pid/status" 2>/dev/null || ! kill -0 "$pid"; do sleep 0.01; done
grep -q '^SigIgn:.*[13579bdf]$' "/proc/$pid/status" || fail "SIGHUP is no longer ignored: $(grep Sig "/proc/$pid/status")"
kill -TERM "$pid"
wait "$pid" || true

# A closed pipe ends a command with one line.
exec 3> >(exec true)
wait $!
status=0
"$hetbench" list models >&3 2>err || status=$?
[ "$status: $(cat err)" = "1: hetbench: standard output cannot be written" ] || fail "a closed pipe: $status: $(cat err)"
exec 3>&-
finish
