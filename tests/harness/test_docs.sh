#!/usr/bin/env bash
# The commands of README.md, docs and the systems' READMEs run as they stand there (docs_commands.py).
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$root"
documents=(README.md)
[ -n "$sanitized" ] || mapfile -t documents < <(printf "%s\n" README.md docs/*.md */README.md | grep -v docs/lesson.md | sort -u) # test_lesson.sh runs that
full=()
[ "${HT_FULL:-0}" = 0 ] || full=(--full)
needs_ranks --model gpt-mini --data "$text"
"$python" -B tests/harness/docs_commands.py "$root" "$build" "${full[@]}" "${documents[@]}" || failures=1
finish
