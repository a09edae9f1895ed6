#!/usr/bin/env bash
# The table of fitted and left-out rows: every measured row is in it once, its figures are those of a sum by other means, and it is that of
# the results in the tree.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
for b in bench_links bench_network; do [ -x "$build/$b" ] || fail "$build/$b is not built"; done

"$python" "$root/scripts/rate-errors" --build "$build" --out rates.csv 2>log || fail "$(cat log)"
cmp -s rates.csv "$root/results/rates.csv" || fail "results/rates.csv is not that of the results in the tree: $(diff rates.csv "$root/results/rates.csv" | head -n 5)"

# every line of the measurements is one row: of collectives, and of Mist's messages and rings
measured() { tail -q -n +2 "${@/#/$root/harness/claims/measured/}" | wc -l; }
collectives=$(awk -F, '$2 == "vTrain" || ($2 == "Mist" && $1 !~ /: (messages|rings)$/) {n += $4} END {print n}' rates.csv)
[ "$collectives" = "$(measured vtrain_allreduce.csv mist_comm.csv)" ] || fail "$collectives rows of collectives"
network=$(awk -F, '$2 == "Mist" && $1 ~ /: (messages|rings)$/ {n += $4} END {print n}' rates.csv)
[ "$network" = "$(measured mist_network.csv)" ] || fail "$network rows of messages"

# NVLink of V100 was fitted on vTrain's all-reduces over 8 GPUs above 16 MiB: mean and worst by awk
"$build/bench_links" --rows >links.csv
by_awk=$(awk -F, '$1 == "vTrain" && $2 == "v100" && $4 == 8 && $5 > 16777216 {e = $7 / $6 - 1; e = e < 0 ? -e : e; s += e; n++; if (e > w) w = e}
    END {printf "%d,%.1f,%.1f", n, 100 * s / n, 100 * w}' links.csv)
grep -qx "NVLink of v100,vTrain,fitted,$by_awk" rates.csv || fail "NVLink of v100: $by_awk by awk"

# a message of Sailor's RTX 3090 nodes passes 1 Gb/s at 0.9: 0.1125 GB/s less 20 us, for 0.1146 measured at 16 MB
"$build/bench_network" --rows >network.csv
grep -qx "Sailor,RTX-3090,between nodes,2,1,16000000,0.1146,0.1125" network.csv || fail "a message over 1 Gb/s"

# ---- verdicts on memory ----

"$python" "$root/scripts/memory-verdicts" --out verdicts.csv >counts 2>log || fail "$(cat log)"
cmp -s verdicts.csv "$root/results/verdicts.csv" || fail "results/verdicts.csv is not that of the results in the tree"

# each kind of error by hand; rows of other metrics are left out
mkdir claims
header=id,paper,ours,verdict,reading
printf '%s\n' $header 'autohete.fig4.zero-offload.oom-6B,24,20,outside,' 'autohete.fig4.zero-offload.oom-10B,12,16,outside,' \
    'autohete.fig5.zero-offload.min-4B,16 GiB,20 GiB,outside,' 'autohete.fig5.zero-offload.min-6B,24 GiB,20 GiB,outside,' \
    'autohete.fig3a.zero-offload.oom,autohete-12b,autohete-12b,outside,' 'autohete.fig3a.plan-4B,13,12,within,' >claims/autohete.csv
printf '%s\n' $header 'sysx.fig10.19b.mobius-oom-mbs8,OOM,fits,outside,' 'sysx.fig10.19b.sysx-fits-mbs8,fits,does not fit,outside,' \
    'sysx.fig10.40b.mobius-oom-mbs8,OOM,does not fit,within,' >claims/sysx.csv
printf '%s\n' $header 'cephalo.table8.vit-e.b128.fsdp,OOM,does not fit,outside,' >claims/cephalo.csv
printf '%s\n' $header >claims/lohan.csv
"$python" "$root/scripts/memory-verdicts" --claims claims --out by_hand.csv >counts 2>log || fail "$(cat log)"
[ "$(tail -n +2 by_hand.csv | sed 's/.*,//' | paste -sd, -)" = "OOM but ran,fits but OOM,OOM but ran,fits but OOM,other memory,other memory,fits but OOM,OOM but ran,right" ] ||
    fail "$(cat by_hand.csv)"
grep -qx "all,9,1,3,3,2" counts || fail "$(cat counts)"

# ---- what a program takes of a device, by profile and system ----

takes() { # SYSTEM SOFTWARE: "more" or "same", beside the tensors' bytes on the device
    "$hetbench" verify "$1" --model autohete-2b --cluster autohete-1gpu --software "$2" --json >out.json || fail "$1 $2: rc $?"
    "$python" -c 'import json; m = json.load(open("out.json"))["memory"][0]
print("more" if m["program_bytes"] > m["safe_sequence_bytes"] else "same")'
}
[ "$(takes zero_offload_ckpt fused)" = same ] || fail "fused has an allocator"
for software in eager torch megatron; do
    [ "$(takes zero_offload_ckpt $software)" = more ] || fail "$software has no allocator"
done
[ "$(takes patrickstar_ckpt eager)" = same ] || fail "chunks lose memory between segments"

finish
