#!/usr/bin/env bash
# Where outputs go: links are written through, devices and pipes written to, files replaced whole; and no output is another or an input.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"
tiny=(--model gpt-tiny --cluster local --device-memory 100MB)
mini=(in_memory --model gpt-mini --batch 2 --seq 16 --data "$text" --steps 2)
losses() { run 0 train "${mini[@]}" "$@"; }
losses --losses expected.csv
[ "$(wc -l <expected.csv)" = 3 ] || fail "--losses: $(cat expected.csv)"
same() { cmp -s expected.csv "$1" || fail "$2: $(cat "$1")"; }

# ---- links ----

# A link stays, its target gets the new contents and keeps its mode; so through several, relative and absolute, and a folder's.
mkdir real
echo old >real/l.csv
chmod 640 real/l.csv
ln -s l.csv real/second
ln -s "$work/real/second" first
ln -s real folder
losses --losses first
same real/l.csv "through two links"
[ -L first ] && [ -L real/second ] || fail "a link has been replaced: $(ls -l first real)"
[ "$(stat -c %a real/l.csv)" = 640 ] || fail "the mode is $(stat -c %a real/l.csv)"
losses --losses folder/l.csv
[ -L folder ] || fail "a link to a folder has been replaced"
# Where the target does not exist it is made.
ln -s real/new.csv dangling
losses --losses dangling
same real/new.csv "a link to nothing"
[ -L dangling ] || fail "a link to nothing has been replaced"
ln -s loop loop
refused 2 "loop: cannot be written: Too many levels of symbolic links" train "${mini[@]}" --losses loop
refused 2 "none/l.csv: cannot be written: No such file" train "${mini[@]}" --losses none/l.csv
# Another hard link keeps the old contents: a file is replaced, not written over.
echo old >hard
ln hard other
losses --losses hard
same hard "a file with two links"
[ "$(cat other)" = old ] || fail "the other hard link: $(cat other)"
# A name as long as names can be, and what a killed process of this number may have left.
long=$(printf 'l%.0s' {1..255})
losses --losses "$long"
same "$long" "a long name"
# A user who may not write a file may not replace it either.
if [ "$(id -u)" != 0 ]; then
    chmod 400 hard
    refused 2 "hard: cannot be written: Permission denied" train "${mini[@]}" --losses hard
fi

# ---- outputs that are not plain files ----

ln -s /proc/self/fd/1 stdout # as /dev/stdout is
"$hetbench" train "${mini[@]}" --losses stdout >printed
head -n 3 printed >top
same top "standard output, a file"
grep -q "step time" printed || fail "the report is gone: $(cat printed)"
[ -L stdout ] || fail "standard output's link has been replaced"
"$hetbench" train "${mini[@]}" --losses stdout | head -n 3 >top || true
same top "standard output, a pipe"
exec 7>seven
echo before >&7
losses --losses /dev/fd/7
echo after >&7
exec 7>&-
{
    echo before
    cat expected.csv
    echo after
} >whole
cmp -s seven whole || fail "a descriptor: $(cat seven)"
mkfifo fifo
cat fifo >from &
losses --losses fifo
wait $!
same from "a pipe with a name"
[ -p fifo ] || fail "a pipe has been replaced"
losses --losses /dev/null --trace /dev/null
[ -c /dev/null ] || fail "/dev/null has been replaced"
refused 2 "/dev/fd/77: cannot be written: Bad file descriptor" train "${mini[@]}" --losses /dev/fd/77
"$python" -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
refused 2 "sock: cannot be written: No such device or address" train "${mini[@]}" --losses sock
# One of several ranks writes, also to what the shell opened for the launcher.
if "$hetbench" train "${mini[@]}" --ranks 2 --losses ranks.csv >out 2>err; then
    losses --ranks 2 --losses first
    cmp -s ranks.csv real/l.csv && [ -L first ] || fail "two ranks, a link: $(ls -l first)"
    "$hetbench" train "${mini[@]}" --ranks 2 --losses stdout | head -n 3 >top || true
    cmp -s ranks.csv top || fail "two ranks, standard output: $(cat top)"
    exec 7> >(cat >seven)
    reader=$!
    losses --ranks 2 --losses /dev/fd/7
    exec 7>&-
    wait "$reader"
    cmp -s ranks.csv seven || fail "two ranks, a descriptor: $(cat seven)"
    exec 7>seven
    echo before >&7
    refused 2 "/dev/fd/7: a descriptor of a plain file; expected the file's name, as ranks write it" train "${mini[@]}" --ranks 2 --losses /dev/fd/7
    exec 7>&-
    [ "$(cat seven)" = before ] || fail "two ranks, a file by its descriptor: $(cat seven)"
else
    grep -Eq "^hetbench: (this build has no MPI|mpirun is not installed)" err || fail "two ranks: $(cat err)"
fi
# Another user's link in a folder that all may write to is not followed.
if [ "$(id -u)" = 0 ]; then
    mkdir shared
    chmod 1777 shared
    echo mine >mine
    ln -s ../mine shared/l.csv
    chown -h nobody shared/l.csv
    refused 2 "shared/l.csv: is a link of another user's in a shared folder" train "${mini[@]}" --losses shared/l.csv
    refused 2 "shared/l.csv: is a link of another user's in a shared folder" train "${mini[@]}" --losses /dev/null --trace shared/l.csv
    [ "$(cat mine)" = mine ] || fail "another user's link was followed"
fi

# ---- a write that fails leaves the old file ----

echo old >t.json
full() {
    (
        trap '' XFSZ
        ulimit -f 1
        refused 1 "t.json: .*File too large" "$@" --trace t.json
        exit "$failures"
    ) || failures=$((failures + 1))
}
full sim zero_offload "${tiny[@]}"
[ "$(cat t.json)" = old ] || fail "a full disk: the old file is gone"
[ -z "$(find . -name '*.partial')" ] || fail "leftovers: $(find . -name '*.partial')"

# A closed stream's number goes to no file, where lines for people would end.
"$hetbench" train "${mini[@]}" --store closed --resume --events events >out 2>&- || fail "without standard error"
[ "$(grep -vc '^{' events)" = 0 ] || fail "among the events: $(cat events)"
"$hetbench" train "${mini[@]}" --losses closed.csv 2>err >&- && fail "standard output was closed"
grep -q "standard output cannot be written" err || fail "standard output was closed: $(cat err)"
same closed.csv "with standard output closed"

# ---- two outputs, or an output that is an input ----

pair() { refused 2 "$1; expected a file of its own" "${@:2}"; }
train() { pair "$1" train "${mini[@]}" "${@:2}"; }
cp "$text" data.txt
ln -s data.txt data
train "--losses: ./data is what --data reads" --data data.txt --losses ./data
cmp -s "$text" data.txt || fail "the data have been overwritten"
train "--events: data is what --data reads" --data data.txt --events data
cmp -s "$text" data.txt || fail "events have been added to the data"
train "--trace: ./n.csv is what --losses writes, too" --losses n.csv --trace ./n.csv
ln -s n.csv n
train "--trace: n.csv is what --losses writes, too" --losses n --trace n.csv
train "--trace: $work/real/l.csv is what --losses writes, too" --losses folder/l.csv --trace "$work/real/l.csv"
train "--save: x.safetensors is what --losses writes, too" --losses x.safetensors --save x.safetensors
train "--checkpoint: ./x is what --save writes, too" --save x --checkpoint ./x
cp -r "$root/tests/data/gpt2-nano" nano
init=(train in_memory --init nano --batch 2 --data "$text" --steps 1)
pair "--losses: nano/config.json is what --init reads" "${init[@]}" --losses nano/config.json
cmp -s nano/model.safetensors "$root/tests/data/gpt2-nano/model.safetensors" || fail "--init's weights have been overwritten"
run 0 "${init[@]}" --save ./nano # but a model may be trained in place: it has been read
cmp -s nano/model.safetensors "$root/tests/data/gpt2-nano/model.safetensors" && fail "--save over --init has not written"
run 0 sim zero_offload "${tiny[@]}" --dump graph.yaml --trace trace.json
printf 'time_s,node,event\n0,a,joined\n9,a,lost\n' >day.csv
day=(goodput --model gpt-mini --trace p3.2xlarge=oobleck-p3,g4dn.xlarge=day.csv)
pair "--out: ./day.csv is what --trace reads" "${day[@]}" --out ./day.csv
pair "--write-trace: day.csv is what --trace reads" "${day[@]}" --write-trace day.csv
pair "--dump: graph.yaml is what --load reads" sim --load graph.yaml --cluster local --dump graph.yaml
pair "--trace: trace.json is what --replay reads" sim zero_offload "${tiny[@]}" --replay trace.json --trace trace.json
printf 'arch: gpt\nlayers: 1\nwidth: 8\nheads: 2\nvocab: 256\nmax_seq: 16\nname: m\nsource: test\n' >m.yaml
pair "--dump: m.yaml is what --model reads" plan in_memory --model ./m.yaml --cluster local --dump m.yaml
pair "--out: m.yaml is what --model reads" profile --model ./m.yaml --out m.yaml
pair "--out: m.yaml is what --ledger reads" reproduce --ledger m.yaml --out m.yaml
mkdir compared
cp m.yaml compared/compare.csv
pair "--trace: m.yaml is what --profile reads" sim in_memory --model gpt-tiny --cluster local --profile graph.yaml --profile m.yaml --trace m.yaml
pair "--out: compared/compare.csv is what --profile reads" compare --models gpt-tiny --cluster local --profile compared/compare.csv --out compared
ln -s compare.csv compared/compare.json
pair "--out: compared/compare.csv is what --out writes, too" compare --models gpt-tiny --cluster local --out compared
# A built-in name does not stand for a file.
touch gpt-mini
losses --losses gpt-mini
# The report's own file.
for flags in "--losses p.csv" "--json --losses stdout"; do
    status=0
    # shellcheck disable=SC2086 # several words
    "$hetbench" train "${mini[@]}" $flags >p.csv 2>err || status=$?
    [ "$status" = 2 ] && grep -q "is standard output" err || fail "$flags, standard output is p.csv: status $status, $(cat err)"
done
finish
