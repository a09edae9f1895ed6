#!/usr/bin/env bash
# docs/lesson.md: its commands run, its pictures are drawn, its answers come out (lesson.py).
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
"$python" -B "$root/tests/harness/lesson.py" "$root" "$build" || failures=1
finish
