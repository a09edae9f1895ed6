#!/usr/bin/env bash
# Every system trains a GPT and a LLaMA a few steps to the losses of in_memory, with one micro-batch and with several. It
# is also what ThreadSanitizer looks at.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

run 0 list systems --json
cp out systems.json
[ "$(json out '[v for s in d["systems"] if s["name"] == "stronghold" for v in s["variables"]][1]')" = \
    "{'name': 'm', 'meaning': 'blocks in the working window', 'kind': 'number', 'decimal': False, 'min': 1, 'max': None}" ] ||
    fail "list systems does not say how stronghold's m is given"
for model in gpt-mini "$llama_tiny"; do
    # Under a sanitizer, ten times slower, GPT with one micro-batch and LLaMA with two.
    for micro in $([ -z "$sanitized" ] && echo 2 1 || { [ "$model" = gpt-mini ] && echo 2 || echo 1; }); do
        common=(--model "$model" --batch 2 --micro-batch "$micro" --seq 16 --device-memory 64MB --disk "$work")
        run 0 train in_memory "${common[@]}" --data "$text" --steps 4 --losses in_memory.csv
        for system in $(json systems.json '" ".join(s["name"] for s in d["systems"])'); do
            [ "$sanitized" = thread ] || run 0 verify "$system" "${common[@]}" --cluster local # which is one thread
            run 0 train "$system" "${common[@]}" --data "$text" --steps 4 --losses other.csv
            cmp -s in_memory.csv other.csv || fail "$system, $model, micro-batch $micro: losses are not in_memory's"
        done
    done
done
[ "$(wc -l <in_memory.csv)" = 5 ] || fail "there are not four losses"
finish
