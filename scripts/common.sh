# Functions of ./quickstart and ./check: prints steps with the time, installs missing Debian packages. Source it in bash
# with -euo pipefail; $root is the root of the tree.

steps_began=$(date +%s)
step_number=0

# step TEXT: prints the step that begins, with the time since the start.
step() {
    step_number=$((step_number + 1))
    local now
    now=$(date +%s)
    printf '\n== %d. %s  [%d:%02d]\n' "$step_number" "$*" $(((now - steps_began) / 60)) $(((now - steps_began) % 60))
}

note() { printf '   %s\n' "$*"; }

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# refuse TEXT: ends the script for arguments that are wrong.
refuse() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 2
}

# quietly LOG COMMAND...: runs the command with its output in the log; prints the end of the log if it fails.
quietly() {
    local log=$1
    shift
    if ! "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        die "failed: $* (all of its output: $log)"
    fi
}

# as_root COMMAND...: runs the command as root, with sudo if necessary.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# install_packages PACKAGE...: installs the Debian packages that are missing and names them.
install_packages() {
    local package missing=()
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        note "no apt-get here, so nothing is installed; needed are what Debian calls: $*"
        return 0
    fi
    for package in "$@"; do
        # shellcheck disable=SC2016 # the dollar is dpkg-query's
        if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" != installed ]; then
            missing+=("$package")
        fi
    done
    if [ ${#missing[@]} = 0 ]; then
        note "all packages are there"
        return 0
    fi
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        die "these packages are missing, and there is neither root nor sudo to install them: apt-get install ${missing[*]}"
    fi
    note "installing ${missing[*]}"
    local log
    log=$(mktemp -t hetbench-apt.XXXXXX)
    quietly "$log" as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 update
    quietly "$log" as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 install \
        --no-install-recommends "${missing[@]}"
    rm -f "$log"
}

# The packages that the build needs, for the scripts that source this file.
# shellcheck disable=SC2034
build_packages=(gcc libc6-dev cmake ninja-build pkg-config git libfyaml-dev libjansson-dev libxxhash-dev check
    libopenblas-pthread-dev libglpk-dev liburing-dev openmpi-bin libopenmpi-dev)

# Packages bring matplotlib to the distribution's Python, which may not be the first one on PATH.
system_python() {
    if [ -x /usr/bin/python3 ]; then
        echo /usr/bin/python3
    else
        command -v python3
    fi
}

jobs_here() { nproc 2>/dev/null || echo 2; }
