#!/usr/bin/env bash
# scripts/gpu-report, as far as a machine without a GPU can tell: what it would do, a rehearsal on the CPU backend, and what
# it says where there is no GPU.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
report=$root/scripts/gpu-report
cd "$work"

"$python" "$report" --dry-run --prebuilt --out dry >out || fail "a dry run ends with $?"
for word in "== facts" "== kernels" "== parity" "== copies" "== ranks" "== step" "== offload" "== profile" "== sanitizer" "== nccl" \
    "== determinism" "--backend cuda" "train autohete" "CK_RUN_CASE=real" "== rates" "bench_cuda_kernels memory" "== torch" \
    "bench_gpu_step_torch.py bench/gpt2-1.5b.yaml" "bench_cuda_attention_torch.py" "--tool racecheck"; do
    grep -q -e "$word" out || fail "the dry run does not tell of '$word'"
done
[ ! -e dry ] || fail "the dry run wrote something"
"$python" - "$report" <<'EOF' || fail "the parts' seconds are more than the minutes of the report"
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
values = {}
exec(re.search(r"^BUDGETS_S = \{.*?^\}", text, re.S | re.M).group(0), values)
minutes = float(re.search(r"--minutes.*default=([0-9.]+)", text).group(1))
assert sum(values["BUDGETS_S"].values()) <= 60 * minutes <= 570
EOF
grep -o '"test_cuda_[a-z_]*"' "$report" | tr -d '"' >named
[ -s named ] || fail "gpu-report names no test of the kernels"
while read -r name; do
    [ -e "$root/tests/common/kernels/cuda/$name.cu" ] || fail "gpu-report names $name, which is no test"
done <named

# Every part once, with tiny models: all trainings have in_memory's bits, and the files are there and few. Of the kernels' tests, which are
# tests of their own, a few suffice here.
mkdir few
ln -s "$build"/* few/
rm -f few/test_cuda_{unit,attention,ops,parts}_on_cpu
"$python" "$report" --rehearse --bin few --minutes 60 --out done >out 2>&1 || {
    fail "the rehearsal ends with $?"
    tail -n 20 out
}
[ "$(ls done | wc -l)" -le 9 ] || fail "more than nine files: $(ls done)"
for file in README.md report.json parity.csv ranks.csv step.csv offload.csv profile.yaml logs.tar.gz; do
    [ -s "done/$file" ] || fail "$file is missing"
done
tar -xzf done/logs.tar.gz || fail "the archive cannot be read"
[ -s logs/autohete.trace.json ] || fail "the archive has no trace"
[ "$(cat logs/*-step-hetbench.cmd | grep -c "train in_memory --model bench/gpt-256.yaml")" = 1 ] &&
    [ "$(cat logs/*-step-hetbench.out | grep -c '"losses"')" = 1 ] || fail "the archive has no output of the step: $(ls logs)"
sed -n '/^== summary/,$p' out >summary
[ "$(wc -l <summary)" -ge 10 ] && [ "$(wc -l <summary)" -le 101 ] && [ "$(wc -c <summary)" -le 11500 ] ||
    fail "the summary is none: $(wc summary)"
cp done/report.json out
[ "$(json out 'd["parts"]["parity"]["ran"] >= 20 and d["parts"]["parity"]["ran"] == d["parts"]["parity"]["bit_identical"]')" = \
    True ] || fail "not all trainings of the rehearsal have in_memory's losses"
[ "$(json out 'd["parts"]["ranks"]["ran"] == d["parts"]["ranks"]["as_expected"] == 20')" = True ] ||
    fail "not all ranks of the rehearsal have the losses of one: $(cat done/ranks.csv)"
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
"$python" "$report" --rehearse --bin bin --minutes 60 --out hung --budget kernels=4 --part kernels --part profile --part facts \
    --part step >out 2>&1 || status=$?
[ "$status" = 1 ] || fail "with parts that fail the status is $status, expected 1"
[ $(($(date +%s) - began)) -lt 280 ] || fail "a part that hangs was not given up"
for line in "FAILED kernels: test_cuda_hangs_on_cpu: stopped after 4 s" "FAILED kernels: test_cuda_dies_on_cpu: exit status -11" \
    "FAILED profile: hetbench profile.*no such GPU" "^ok  step" "^NOT kernels" "^NOT profile"; do
    sed -n '/^== summary/,$p' out | grep -q -e "$line" || fail "the summary has no '$line': $(tail -n 20 out)"
done
[ -s hung/step.csv ] && [ -s hung/report.json ] || fail "the results of the other parts are lost"

# An archive that cannot be written costs no results.
mkdir -p unarchived/logs.tar.gz
"$python" "$report" --rehearse --bin bin --out unarchived --part facts --part step >out 2>&1 || fail "no archive: status $?"
[ -s unarchived/step.csv ] && [ -s unarchived/report.json ] || fail "without an archive the results are lost"
[ "$(grep -c "^FAILED.*logs.tar.gz" out)" = 1 ] && [ ! -e unarchived/logs.tar.gz.partial ] || fail "no archive: $(tail -n 5 out)"
"$python" "$report" --budget nothing=3 >out 2>&1 && fail "a budget of no part was taken"

# compute-sanitizer runs all tests at once, with small shapes: one that takes too long under it leaves the others theirs.
mkdir tools
cat >tools/compute-sanitizer <<'EOF'
#!/bin/sh
[ "$HT_CUDA_TEST_SMALL" = 1 ] || exit 9
case "$2 $5" in
memcheck*_ops) sleep 60 ;;
racecheck*) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" ;;
*) echo "========= ERROR SUMMARY: 0 errors" ;;
esac
EOF
while read -r name; do cp tools/compute-sanitizer "bin/$name"; done <named
chmod +x tools/* bin/*
PATH=$PWD/tools:$PATH "$python" "$report" --rehearse --bin bin --out sanitized --budget sanitizer=3 --part sanitizer >out 2>&1 || true
for line in "^NOT sanitizer.* ran=10 of=11" "^ *memcheck test_cuda_ops: not run to its end: no time was left" \
    "^ *memcheck test_cuda_attention: ERROR SUMMARY: 0 errors" \
    "^ *racecheck test_cuda_ops: RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)$"; do
    sed -n '/^== summary/,$p' out | grep -q -e "$line" || fail "the summary has no '$line': $(tail -n 20 out)"
done

# Budgets of offloading are shares of what in_memory needs: where it does not run, the part stops with its reason. No part
# takes more than is left of the whole.
cat >bin/hetbench <<EOF
#!/bin/sh
case "\$*" in "train in_memory"*) echo "hetbench: 7 GB of 8 GB are in use" >&2; exit 3 ;; esac
exec "$hetbench" "\$@"
EOF
"$python" "$report" --rehearse --bin bin --out stopped --part offload >out 2>&1 && fail "offloading passes without in_memory"
[ "$(grep -c "^FAILED" out)" = 1 ] && grep -q "^FAILED offload: .*stopped: in_memory: hetbench: 7 GB of 8 GB are in use" out ||
    fail "without in_memory: $(tail -n 5 out)"
"$python" "$report" --rehearse --bin bin --out late --minutes 0.01 --part facts --part step >out 2>&1 && fail "0.6 s are enough"
grep -q "^FAILED step: step: not run: no time was left" out || fail "no time: $(tail -n 5 out)"
ln -sf "$hetbench" bin/hetbench

# The kernels' rates, and PyTorch beside them. A compilation that is cut off leaves the eager step.
cat >bin/bench_cuda_kernels <<'EOF'
#!/bin/sh
[ "$1" = attention ] || exit 0
echo '{"kind": "attention", "name": "attention forward", "type": "bf16", "shape": "B 8", "unit": "TFLOP/s", "rate": 300}'
echo '{"kind": "attention", "na'
EOF
cat >tools/python-with-torch <<'EOF'
#!/bin/sh
case $1 in
*attention*)
    echo '{"kind": "attention", "name": "attention forward", "type": "bf16", "shape": "B 8", "unit": "TFLOP/s", "rate": 400}'
    echo '{"kind": "attention", "name": "attention backward", "type": "bf16", "shape": "B 8", "unit": "TFLOP/s", "rate": 200}'
    ;;
*)
    echo '{"torch": "0", "mode": "eager", "median_step_s": 0.5, "peak_bytes": 7}'
    sleep 300
    ;;
esac
EOF
chmod +x bin/bench_cuda_kernels tools/python-with-torch
TORCH_PYTHON=$PWD/tools/python-with-torch "$python" "$report" --rehearse --bin bin --out beside --budget torch=24 --part step \
    --part rates --part torch >out 2>&1 && fail "a compilation that was cut off passes"
"$python" - <<'EOF' || fail "PyTorch beside ours: $(cat beside/*.csv)"
import csv
step, = csv.DictReader(open("beside/step.csv", encoding="utf-8"))
assert step["torch_eager_step_s"] == "0.5" and step["torch_status"] == "no time", step
assert abs(float(step["ours_over_torch_eager"]) * float(step["ours_step_s"]) - 0.5) < 1e-9, step
forward, backward = csv.DictReader(open("beside/rates.csv", encoding="utf-8"))
assert forward["reference"] == "PyTorch" and float(forward["ratio"]) == 0.75, forward
assert backward["rate"] == "" and float(backward["reference_rate"]) == 200, backward
EOF

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
