#!/usr/bin/env bash
# An mpirun that hangs, is slow or cannot start the ranks: the job ends when a rank has died, and only then; one line says why.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
common=(zero_offload --model gpt-mini --batch 4 --micro-batch 1 --seq 16 --data "$text")
needs_ranks "${common[@]:1}"
mkdir tmp bin
limit=120 # for a hang, no more
export TMPDIR=$work/tmp GO=$work/go real_mpirun
real_mpirun=$(command -v mpirun)
printf '#!/bin/sh\nHETBENCH_TEST=%s exec "%s" "$@"\n' "$work" "$hetbench" >hetbench
chmod +x hetbench
hetbench=$work/hetbench
export PATH=$work/bin:$PATH
cat >bin/mpirun <<'SH'
#!/usr/bin/env bash
trap '' TERM INT HUP
case $FAKE in
hangs) # whatever becomes of the ranks
    "$real_mpirun" "$@"
    exec sleep infinity
    ;;
slow)
    sleep 4
    until [ -e "$GO" ]; do sleep 0.1; done
    exec "$real_mpirun" "$@"
    ;;
unborn) # its ranks never get as far as to connect; one is killed, now and again
    OMPI_COMM_WORLD_RANK=0 sleep infinity &
    while :; do
        OMPI_COMM_WORLD_RANK=1 sleep infinity &
        sleep 0.5
        kill -KILL $!
    done
    ;;
refuses)
    printf '%s\n' "------------------------------" "There are not enough slots" "" "for 2 ranks." "------------------------------" >&2
    exit 1
    ;;
esac
SH
chmod +x bin/mpirun

# job: all processes of the trainings, with any parent.
job() { grep -lzxF "HETBENCH_TEST=$work" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 || true; }

# These two have no sign of trouble for longer than a hang is given: mpirun takes its time; a rank is stopped, then goes on.
FAKE=slow "$hetbench" train "${common[@]}" --ranks 2 --steps 2 --losses slow.csv >slow.out 2>slow.err &
slow=$!
FAKE=hangs "$hetbench" train "${common[@]}" --ranks 2 --steps 20000 >out 2>err &
pid=$!
until [ "$(ranks_of "$(pgrep -P "$pid" || echo 0)" | wc -w)" = 2 ] || ! kill -0 "$pid"; do sleep 0.1; done
ranks=$(ranks_of "$(pgrep -P "$pid" || echo 0)")
# shellcheck disable=SC2046,SC2086 # words
until [ "$(grep -l memfd: $(printf '/proc/%s/maps ' $ranks) 2>/dev/null | wc -l)" = 2 ] || ! kill -0 "$pid"; do sleep 0.1; done
[ "$(find tmp -mindepth 1 -maxdepth 1 | wc -l)" = 2 ] || fail "a launch has removed another's folder: $(ls tmp)"
touch "$GO"
stopped=$(echo "$ranks" | tail -n 1)
kill -STOP "$stopped"
sleep 4
kill -CONT "$stopped"
kill -0 "$pid" || fail "a stopped rank has ended all: $(cat err)"

# Now one dies.
kill -KILL "$stopped"
status=0
gone "$limit" "$pid"
kill -KILL "$pid" 2>/dev/null || true
wait "$pid" || status=$?
[ "$status" = 1 ] || fail "mpirun hangs: status $status"
grep -v '^step ' err >said || true
[ "$(wc -l <said)" = 1 ] || fail "mpirun hangs: expected one line: $(cat said)"
grep -Eq '^hetbench: rank 1 (is gone|was killed by signal 9|ended without a report)' said || fail "mpirun hangs: $(cat said)"
wait "$slow" || fail "a slow mpirun: $(cat slow.err)"
[ -s slow.csv ] || fail "a slow mpirun: no losses"

# All is well but for an mpirun that does not end.
FAKE=hangs run 0 train "${common[@]}" --ranks 2 --steps 2 --losses hangs.csv
cmp -s slow.csv hangs.csv || fail "mpirun hangs at the end: other losses"

FAKE=unborn refused 1 "rank 1 was killed by signal 9|rank 1 ended without a report" train "${common[@]}" --ranks 2 --steps 2
FAKE=refuses refused 1 "mpirun ended with status 1 before the ranks did: There are not enough slots for 2 ranks\.$" train "${common[@]}" \
    --ranks 2 --steps 2
(ulimit -n 36 && FAKE=slow refused 3 "2 ranks need [0-9]+ open files; the limit is 36" train "${common[@]}" --ranks 2 --steps 2 && finish >/dev/null) ||
    fail "few open files"
TMPDIR=$work/none refused 1 ".*/none/hetbench-ranks-.*: cannot create the ranks' folder: No such file" train "${common[@]}" \
    --ranks 2 --steps 2

# The ranks write to standard output themselves: a closed pipe is one line here, too.
exec 3> >(exec true)
wait $!
status=0
PATH=${PATH#*:} "$hetbench" train "${common[@]}" --ranks 2 --steps 2 >&3 2>err || status=$?
[ "$status: $(grep -Ev '^(step|checking) ' err)" = "1: hetbench: standard output cannot be written" ] || fail "a closed pipe: $status: $(cat err)"
exec 3>&-

left=$(job)
# shellcheck disable=SC2086 # words
[ -z "$left" ] || fail "processes are left: $(ps -o pid,ppid,stat,args $left)"
for p in $left; do kill -KILL "$p" || true; done
[ -z "$(ls tmp)" ] || fail "left in TMPDIR: $(ls tmp)"
finish
