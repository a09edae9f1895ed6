#!/usr/bin/env bash
# scripts/gpu-report, as far as a machine without a GPU can tell: what it would do, a rehearsal on the CPU backend, and what
# it says where there is no GPU.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
report=$root/scripts/gpu-report
cd "$work"

"$python" "$report" --dry-run --prebuilt --out dry >out || fail "a dry run ends with $?"
for word in "== facts" "== kernels" "== parity" "== copies" "== step" "== offload" "== profile" "== sanitizer" "== nccl" \
    "== determinism" "--backend cuda" "train autohete" "env CK_RUN_CASE=real"; do
    grep -q -e "$word" out || fail "the dry run does not tell of '$word'"
done
[ ! -e dry ] || fail "the dry run wrote something"
grep -o '"test_cuda_[a-z_]*"' "$report" | tr -d '"' >named
[ -s named ] || fail "gpu-report names no test of the kernels"
while read -r name; do
    [ -e "$root/tests/common/kernels/cuda/$name.cu" ] || fail "gpu-report names $name, which is no test"
done <named

# Every part once, with tiny models: all trainings have in_memory's bits, and the files are there and few.
"$python" "$report" --rehearse --bin "$build" --minutes 4 --out done >out 2>&1 || {
    fail "the rehearsal ends with $?"
    tail -n 20 out
}
[ "$(ls done | wc -l)" -le 8 ] || fail "more than eight files: $(ls done)"
for file in README.md report.json parity.csv step.csv offload.csv profile.yaml trace.json; do
    [ -s "done/$file" ] || fail "$file is missing"
done
sed -n '/^== summary/,$p' out >summary
[ "$(wc -l <summary)" -ge 10 ] && [ "$(wc -l <summary)" -le 101 ] && [ "$(wc -c <summary)" -le 11500 ] ||
    fail "the summary is none: $(wc summary)"
cp done/report.json out
[ "$(json out 'd["parts"]["parity"]["ran"] >= 20 and d["parts"]["parity"]["ran"] == d["parts"]["parity"]["bit_identical"]')" = \
    True ] || fail "not all trainings of the rehearsal have in_memory's losses"
[ "$(json out 'len(d["parts"]["offload"]["speedups"]) >= 1 and d["parts"]["profile"]["works"] > 10')" = True ] ||
    fail "the rehearsal has no speedup or no profile"
grep -q "say nothing about a GPU" done/README.md || fail "a rehearsal reads like a measurement"

# A part that hangs, with a child that holds its output and does not want to end; one whose program is killed; one whose
# program's answer is none. The other parts' results are there all the same, and each failure has its line.
mkdir bin
cat >bin/test_cuda_hangs_on_cpu <<'EOF'
#!/bin/sh
trap '' TERM
(trap '' TERM; sleep 300) &
sleep 300
EOF
cat >bin/test_cuda_dies_on_cpu <<'EOF'
#!/bin/sh
echo before
kill -SEGV $$
EOF
cat >bin/hetbench <<EOF
#!/bin/sh
case "\$*" in profile*) echo "no such GPU" >&2; echo "[1, 2"; exit 1 ;; esac
exec "$hetbench" "\$@"
EOF
chmod +x bin/*
status=0
began=$(date +%s)
"$python" "$report" --rehearse --bin bin --minutes 2 --out hung --budget kernels=4 --part kernels --part profile --part facts \
    --part step >out 2>&1 || status=$?
[ "$status" = 1 ] || fail "with parts that fail the status is $status, expected 1"
[ $(($(date +%s) - began)) -lt 60 ] || fail "a part that hangs was not given up"
for line in "FAILED kernels: test_cuda_hangs_on_cpu: stopped after 4 s" "FAILED kernels: test_cuda_dies_on_cpu: exit status -11" \
    "FAILED profile: hetbench profile.*no such GPU" "^ok  step" "^NOT kernels" "^NOT profile"; do
    sed -n '/^== summary/,$p' out | grep -q -e "$line" || fail "the summary has no '$line': $(tail -n 20 out)"
done
[ -s hung/step.csv ] && [ -s hung/report.json ] || fail "the results of the other parts are lost"
"$python" "$report" --budget nothing=3 >out 2>&1 && fail "a budget of no part was taken"

# compute-sanitizer's time is shared: a test that takes too long under it leaves the others theirs.
mkdir tools
cat >tools/compute-sanitizer <<'EOF'
#!/bin/sh
case "$3" in *_ops) sleep 60 ;; esac
echo "========= ERROR SUMMARY: 0 errors"
EOF
while read -r name; do cp tools/compute-sanitizer "bin/$name"; done <named
chmod +x tools/* bin/*
PATH=$PWD/tools:$PATH "$python" "$report" --rehearse --bin bin --out sanitized --budget sanitizer=9 --part sanitizer >out 2>&1 || true
grep -q "test_cuda_ops=no time.*test_cuda_attention=ERROR SUMMARY: 0 errors" out || fail "sanitizer: $(tail -n 4 out)"

if ! command -v nvidia-smi >/dev/null; then
    status=0
    "$python" "$report" --bin "$build" --out none 2>err || status=$?
    [ "$status" = 3 ] || fail "without a GPU: status $status, expected 3"
    [ "$(wc -l <err)" = 1 ] || fail "without a GPU it says: $(cat err)"
    grep -q "no GPU" err || fail "without a GPU: no line says so"
fi

for backend in train profile; do
    words=()
    [ $backend = profile ] || words=(in_memory --data "$text")
    status=0
    "$hetbench" $backend "${words[@]}" --model gpt-tiny --backend cuda >out 2>err || status=$?
    [ "$status" = 0 ] || [ "$status" = 3 ] || fail "$backend --backend cuda: status $status"
    [ "$status" = 0 ] || [ "$(wc -l <err)" = 1 ] || fail "$backend --backend cuda says more than a line: $(cat err)"
done
finish
