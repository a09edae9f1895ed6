#!/usr/bin/env bash
# Days on spot instances on the command line: bad input in one line, drawn and merged traces, the document, an experiment and its figures.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

small=(--model gpt-mini --batch 8 --micro-batch 1 --numerics fp16 --iterations 3 --warmup 1)
refused 2 "--trace is missing; expected --trace INSTANCE=NAME or --draw$" goodput "${small[@]}"
refused 2 "--trace and --draw are both given" goodput "${small[@]}" --trace a --draw nodes=1
refused 2 "unknown trace 'oobleck-p4'; expected 'oobleck-p3'\?$" goodput "${small[@]}" --trace oobleck-p4
refused 2 "cluster 'spot-instances' has no node with 'instance: p5'" goodput "${small[@]}" --trace p5=oobleck-p3
refused 2 "unknown policy 'varna'; expected 'varuna'\?$" goodput "${small[@]}" --trace oobleck-p3 --policies varna
refused 2 "--speeds: 1 is not above the value before; expected rising values$" goodput "${small[@]}" --trace oobleck-p3 --speeds 2,1
refused 2 "--price: 'p3.2xlarge' has no price; expected INSTANCE=USD, by the hour$" goodput "${small[@]}" --trace oobleck-p3 --price p3.2xlarge
refused 2 "--price: cluster 'spot-instances' has no node with 'instance: p9'$" goodput "${small[@]}" --trace oobleck-p3 --price p9=1
refused 2 "--draw: burst is 0; expected 1 to 4096$" goodput "${small[@]}" --draw burst=0
refused 2 "--draw: nodes is given twice; expected it once$" goodput "${small[@]}" --draw nodes=8,nodes=9
refused 2 "--draw: unknown name 'node'; expected nodes" goodput "${small[@]}" --draw instance=p3.2xlarge,node=8
refused 2 "--draw: nodes is 3.7; expected a whole number$" goodput "${small[@]}" --draw nodes=3.7
refused 2 "--model is missing" goodput --trace oobleck-p3
refused 2 "unknown model 'gpt-minx'" goodput --model gpt-minx --trace oobleck-p3
printf 'time_s,node,event\n0,a,joined\n1,b,lost\n' >bad.csv
refused 2 "bad.csv:3: key 'node': 'b' has not joined; expected a node that has$" goodput "${small[@]}" --trace bad.csv
printf 'time_s,node,event\n5,a,joined\n5,b,joined\n' >still.csv
refused 2 "the day ends as it begins, since all events of still.csv are at one time; expected later ones$" goodput "${small[@]}" --trace still.csv
refused 2 "the day ends as it begins, since all events of the drawn trace are" goodput "${small[@]}" --draw rate=0,instance=p3.2xlarge
refused 2 "none.csv: cannot be opened; expected a spot trace \(CSV\)$" goodput "${small[@]}" --trace none.csv

# No part of a day is negative where nodes are lost while a step of a change, as long as a recovery, still runs.
run 0 goodput --model gpt-mini --cluster "$root/tests/data/spot-mini.yaml" --batch 16 --micro-batch 1 --seq 16 --iterations 2 --warmup 1 \
    --draw nodes=8,hours=1,rate=10,instance=mini --json
[ "$(json out 'min(min(p["seconds"].values()) for p in d["policies"]) > -1e-6, max(abs(sum(p["seconds"].values()) - 3600 * d["hours"]) for p in d["policies"]) < 1e-3')" = "(True, True)" ] ||
    fail "a part of a day is negative, or its parts are not the day: $(json out '[p["seconds"] for p in d["policies"]]')"

# A drawn trace is the same each time, and from its file.
drawn=nodes=4,hours=2,rate=3,burst=1.5,absent=400,notice=120,noticed=0.5,instance=p3.2xlarge
run 0 goodput "${small[@]}" --draw "$drawn" --write-trace drawn.csv
run 0 goodput "${small[@]}" --draw "$drawn,seed=2" --write-trace other.csv
! cmp -s drawn.csv other.csv || fail "two seeds give one trace"
run 0 goodput "${small[@]}" --draw "$drawn" --json --plans plans --speeds 0.5,1,2 --intervals 20,60
cp out first.json
run 0 goodput "${small[@]}" --trace drawn.csv --json --plans plans --out days.csv --speeds 0.5,1,2 --intervals 20,60
[ "$(json out '[p["steps"] for p in d["policies"]]')" = "$(json first.json '[p["steps"] for p in d["policies"]]')" ] ||
    fail "a trace from its file gives another day"
[ "$(json first.json 'd["plans"]["made"] > 0, d["plans"]["remembered"]')" = "(True, 0)" ] || fail "plans: $(json first.json 'd["plans"]')"
[ "$(json out 'd["plans"]["made"], d["plans"]["remembered"] > 0')" = "(0, True)" ] || fail "plans: $(json out 'd["plans"]')"
[ "$(json out 'max(abs(sum(p["seconds"].values()) - 3600 * d["hours"]) for p in d["policies"]) < 1e-3')" = True ] || fail "time is not booked once"
[ "$(json out '[r["samples_per_hour"] == {p["policy"]: p["samples_per_hour"] for p in d["policies"]} for r in d["speeds"]]')" = "[False, True, False]" ] ||
    fail "a day at speed 1 is another: $(json out 'd["speeds"]')"
[ "$(wc -l <days.csv)" = 5 ] || fail "days.csv: $(cat days.csv)"
run 0 goodput "${small[@]}" --trace p3.2xlarge=drawn.csv,g4dn.xlarge=drawn.csv --policies restart --price "g4dn.xlarge=10:our contract of May" \
    --out priced.csv
grep -q "^  g4dn.xlarge: 1 x t4, 10 USD an hour (our contract of May)$" out || fail "prices: $(cat out)"
grep -q "g4dn.xlarge: 10 USD an hour (our contract of May)" priced.csv || fail "prices: $(cat priced.csv)"
commit=$("$hetbench" --version | sed -n 's/.*(commit \(.*\))$/\1/p')
grep -q ',obtained,commit$' priced.csv && [ "$(grep -c ",\"simulated\",\"$commit\"$" priced.csv)" = $(($(wc -l <priced.csv) - 1)) ] || fail "commit: $(cat priced.csv)"

# Times that drills measured, and where times are from. A hang's detection is its patience, and no loss's.
cat >drills.json <<'JSON'
{"seed": 1, "recoveries": [{"cause": "rank 3 lost, on node 3", "detection_s": 1.0, "planning_s": 0.5, "relaunch_s": 4.0},
 {"cause": "hang", "detection_s": 100.0, "planning_s": 0.5, "relaunch_s": 4.0}]}
{"seed": 2, "recoveries": [{"cause": "host b lost", "detection_s": 3.0, "planning_s": 1.5, "relaunch_s": null}]}
JSON
run 0 goodput "${small[@]}" --trace drawn.csv --policies restart --times drills.json --plan-time 9 --json
[ "$(json out '[d["times"][k] for k in ("detect_s", "plan_s", "relaunch_s")]')" = "[2.0, 9.0, 4.0]" ] || fail "times: $(json out 'd["times"]')"
[ "$(json out 'list(d["times"]["sources"].values())')" = "['measured: mean of 2 recoveries, drills.json', 'as given', 'measured: mean of 1 recoveries, drills.json', 'assumed', 'AutoHet, Sec. V-C']" ] ||
    fail "sources: $(json out 'd["times"]["sources"]')"
run 0 goodput "${small[@]}" --trace drawn.csv --policies restart
grep -q "detection 5 s (assumed), planning 1.23 s (AutoHet's abstract), relaunch 30 s (assumed), " out || fail "sources: $(cat out)"
echo '{"recoveries": []}' >none.json
refused 2 "--times: none.json: no recovery after a loss has 'detection_s'; expected the output of hetbench elastic --drills N --json$" \
    goodput "${small[@]}" --trace drawn.csv --times none.json
printf '{"recoveries": []}\n{"a"\n' >broken.json
refused 2 "--times: broken.json:[23]: is not JSON: " goodput "${small[@]}" --trace drawn.csv --times broken.json

# A restart on fewer nodes than there are at first.
run 0 goodput "${small[@]}" --trace drawn.csv --policies restart --restart-nodes 2 --json
[ "$(json out 'max(m[2] for m in d["policies"][0]["moments"])')" = 2 ] || fail "--restart-nodes 2: $(json out 'd["policies"][0]["moments"]')"

# An experiment of days, resumed from its folder by report alone.
cat >days.yaml <<'YAML'
name: mine
title: My days
model: gpt-mini
batch: 8
micro_batch: 1
numerics: fp16
speeds: [0.5, 2]
intervals: [20, 60]
studies:
  - {label: drawn, trace: drawn.csv}
  - {label: other, trace: other.csv, policies: "autohet,restart"}
YAML
run 0 experiment days.yaml --out mine --plans plans
[ "$(json mine/results.json 'd["experiment"], d["complete"], [len(r["policies"]) for r in d["rows"]]')" = "('mine', True, [4, 2])" ] ||
    fail "$(json mine/results.json 'd["experiment"], d["complete"]')"
sed 's/label: drawn/lable: drawn/' days.yaml >typo.yaml
refused 2 "typo.yaml:10:6: key 'lable': is unknown here; expected 'label'\?" experiment typo.yaml --out typo
if "$python" -c 'import matplotlib' 2>/dev/null; then
    run 0 report mine
    for f in day-mine-1 rates-mine-1 day-mine-2 rates-mine-2; do
        [ -s "mine/figures/$f.png" ] || fail "report did not draw $f"
    done
    grep -q "Days on spot instances" mine/report.html || fail "the page has no days"
    touch -d '1 hour ago' mine/results.json # as where results.csv came with a merge
    run 0 report mine
    grep -q "^mine/results.json: is older than results.csv beside it, which was taken$" out || fail "a stale results.json: $(cat out)"
    rm mine/results.json # as in a clone
    run 0 report mine
    [ -s mine/figures/day-mine-1.png ] || fail "report of results.csv removes the figures"
fi
finish
