#!/usr/bin/env bash
# An installation is whole wherever it is put: cmake --install and cpack, the manual, and completion in bash and zsh.
set -euo pipefail
# shellcheck source=tests/harness/support.sh
. "$(dirname "$0")/support.sh"
cd "$work"

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
run 0 --version
grep -q "^hetbench $version (commit " out || fail "--version says $(head -1 out); expected $version"
grep -q "^## $version\b" "$root/CHANGELOG.md" || fail "CHANGELOG.md has no entry of version $version"
refused 2 "unknown command '--verson'" --verson

cmake --install "$build" --prefix "$work/first" >log 2>&1 || fail "cmake --install: $(tail -5 log)"
mkdir -p moved elsewhere
mv first moved/second
installed=$work/moved/second
cd elsewhere

# As seen from another folder: the program, its catalogues, the report's scripts, the published measurements.
"$installed/bin/hetbench" compare --models autohete-2b --cluster autohete-1gpu --systems zero_offload,autohete --out . >../log 2>&1 ||
    fail "installed: compare: $(tail -3 ../log)"
"$installed/bin/hetbench" report . >../log 2>&1 || fail "installed: report: $(tail -3 ../log)"
[ -s report.html ] || fail "installed: report writes no page"
"$installed/bin/hetbench" sim zero_offload --model autohete-2b --cluster autohete-1gpu --plot plot.html >../log 2>&1 ||
    fail "installed: --plot: $(tail -3 ../log)"
"$installed/bin/hetbench" validate >../log 2>&1 || fail "installed: validate: $(tail -3 ../log)"
# They are the installation's own, not the tree's that was built.
for file in results/validation/mist.csv harness/claims/measured/spipe.csv harness/report/report.py; do
    [ -s "$installed/share/hetbench/$file" ] || fail "$file is not installed"
done
echo nonsense >"$installed/share/hetbench/results/validation/mist.csv"
! "$installed/bin/hetbench" validate >/dev/null 2>../log || fail "validate reads another tree than its own"
grep -q second/ ../log || fail "validate names no file of the installation: $(cat ../log)"
echo 'import sys; sys.exit("a script of the installation")' >"$installed/share/hetbench/harness/report/report.py"
! "$installed/bin/hetbench" report . >/dev/null 2>../log || fail "report runs another tree's script than its own"
grep -q "a script of the installation" ../log || fail "report says: $(cat ../log)"
cd "$work"

# The tarball has the same files, in one folder.
if [ -z "$sanitized" ]; then
    cpack --config "$build/CPackConfig.cmake" -B "$work/pack" >log 2>&1 || fail "cpack: $(tail -5 log)"
    mkdir unpacked
    tar -xzf pack/hetbench-"$version"-*.tar.gz -C unpacked
    [ "$(find unpacked -mindepth 1 -maxdepth 1 | wc -l)" = 1 ] || fail "the tarball has not one folder"
    top=$(echo unpacked/*)
    diff <(cd "$top" && find . -type f | sort) <(cd moved/second && find . -type f ! -path '*__pycache__*' | sort) >log ||
        fail "the tarball has other files than the installation: $(cat log)"
    [ "$("$top/bin/hetbench" --version)" = "$("$hetbench" --version)" ] || fail "the tarball's program has another version"
fi

# The container has the packages of the build, and those of the libraries that the program needs. No test builds it.
packages=$(sed -n '/apt-get install/,/^[A-Z#]*$/p' "$root/Containerfile" | tr ' ' '\n' | sort -u)
has() { grep -qxF -- "$1" <<<"$packages" || fail "Containerfile lacks the package $1, $2"; }
(cd "$root" && . scripts/common.sh && printf '%s\n' "${build_packages[@]}") >wanted
while read -r package; do has "$package" "which scripts/common.sh has"; done <wanted
if [ -z "$sanitized" ] && command -v dpkg-query >/dev/null && command -v readelf >/dev/null; then
    readelf -d "$hetbench" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE '^(lib(c|m|gcc_s|stdc\+\+)\.|ld-)' >needed
    while read -r library; do
        package=$(dpkg-query -S "*/$library" 2>/dev/null | head -1 | cut -d: -f1)
        [ -z "$package" ] || has "$package" "of $library"
    done <needed
fi

# The manual has each command, and each option with the words of --help.
"$python" - "$hetbench" "$installed/share/man/man1" <<'PY' || fail "the manual and the help differ"
import os, re, subprocess, sys
hetbench, pages = sys.argv[1:]

def words(text):
    return " ".join(text.split())

def of_help(*arguments):
    return subprocess.run([hetbench, *arguments], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "5000"}).stdout

def of_roff(name):
    """The text of a page without requests and escapes."""
    lines = [re.sub(r"^\.(BR?|SS|SH|TP|TH|RS|RE|nf|fi|nh|ad|PP)\b ?", "", line) for line in open(f"{pages}/{name}.1", encoding="utf-8")]
    left = [line for line in lines if re.match(r"^[.']", line)]
    text = "".join(lines).replace(r"\&", "").replace(r"\(aq", "'").replace(r"\-", "-").replace(r"\e", "\\")
    return words(text), left

commands = re.findall(r"^  ([a-z]+)\b", of_help("--help").split("Every command")[0], re.M)
commands = [c for c in dict.fromkeys(commands) if c != "hetbench"]
wrong = [] if len(commands) >= 17 else [f"only {len(commands)} commands"]
main, left = of_roff("hetbench")
for command in commands:
    text, more = of_roff(f"hetbench-{command}")
    left += more
    if command not in main:
        wrong.append(f"hetbench.1 lacks {command}")
    options = re.findall(r"^  (-\S.*?)  +(\S.*)$", re.sub(r"\n {20,}", "  ", of_help(command, "--help")), re.M)
    if len(options) < 2:
        wrong.append(f"{command}: {len(options)} options")
    for name, meaning in options:
        if words(f"{name} {meaning}") not in text:
            wrong.append(f"hetbench-{command}.1 lacks: {name}  {meaning}")
print(*wrong, *left, sep="\n")
sys.exit(bool(wrong or left))
PY
if command -v groff >/dev/null; then
    for page in "$installed"/share/man/man1/*.1; do
        groff -man -ww -z "$page" >log 2>&1 && [ ! -s log ] || fail "$(basename "$page"): $(head -3 log)"
    done
fi

# completes WORDS...: what bash offers for the last word.
completes() {
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hetbench; printf "%s\n" "${COMPREPLY[@]}"' - \
        "$installed/share/bash-completion/completions/hetbench" hetbench "$@" | tr '\n' ' '
}
# expect_completion EXPECTED WORDS...
expect_completion() {
    local expected=$1
    shift
    [ "$(completes "$@")" = "$expected " ] || fail "bash completes '$*' as '$(completes "$@")', not '$expected'"
}
expect_completion "profile" pro
expect_completion "--growth-interval" sim --gr
expect_completion "fp32 fp16 bf16" sim autohete --numerics ""
expect_completion "zero_offload zero_offload_ckpt" sim zero_o
expect_completion "lohan,zero_offload lohan,zero_offload_ckpt" compare --systems lohan,zero_o
expect_completion "autohete-1gpu" plan x --cluster autohete-1
expect_completion "moved" train x --store mov
expect_completion "clusters" list cl
for command in sim train advise; do
    completes "$command" -- | tr ' ' '\n' | grep . | sort >offered
    COLUMNS=5000 "$hetbench" "$command" --help | sed -nE 's/^  (-h, )?(--[a-z0-9-]+).*/\2/p' | sort >options
    diff offered options >log || fail "bash offers other options of $command than its help: $(cat log)"
done
refused 2 "--completion: unknown shell 'fish'" --completion fish

mkdir -p autohet_mapped
"$python" "$root/tests/harness/shell_completion.py" bash "$installed/share/bash-completion/completions/hetbench" || fail "bash"
if command -v zsh >/dev/null; then
    "$python" "$root/tests/harness/shell_completion.py" zsh "$installed/share/zsh/site-functions" || fail "zsh"
fi
finish
