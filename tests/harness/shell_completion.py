#!/usr/bin/env python3
"""Types into a shell, presses the tabulator, and waits for what completion makes of it: shell_completion.py zsh FOLDER-OF-_hetbench, or
shell_completion.py bash SCRIPT, in a folder that has one named autohet_mapped."""
import os
import pty
import re
import select
import sys
import time

SECONDS = 120  # a loaded machine may take long; a right answer ends the wait
TYPED = {"zsh": [
    ("hetbench prof", "hetbench profile "),
    ("hetbench sim --growth", "hetbench sim --growth-interval="),
    ("hetbench sim autohete --numerics=bf", "--numerics=bf16"),
    ("hetbench sim autohete --numerics ", "bf16"),  # nothing typed: what there is
    ("hetbench plan autohete --cluster autohete-1", "--cluster autohete-1gpu"),
    ("hetbench compare --systems lohan,autohet_ma", "--systems lohan,autohet_mapped"),
    ("hetbench sim autohet_map", "hetbench sim autohet_mapped"),
    ("hetbench list clu", "hetbench list clusters"),
    ("hetbench list ", "clusters"),
    ("hetbench new exp", "hetbench new experiment"),
], "bash": [
    ("hetbench sim autohet_map", "hetbench sim autohet_mapped "),  # a system, not the folder of that name
    ("hetbench train lohan --store autohet_map", "--store autohet_mapped/"),
    ("hetbench new exp", "hetbench new experiment "),
]}
SETUP = {"zsh": "unsetopt prompt_sp; fpath=({} $fpath); autoload -Uz compinit; compinit -u -D; PS1='REA''DY> '\n",
         "bash": "bind 'set enable-bracketed-paste off'; . {}; PS1='REA''DY> '\n"}
START = {"zsh": ["zsh", "-f"], "bash": ["bash", "--norc", "--noprofile"]}


def wait_for(fd, text):
    """Reads until text stands on the terminal; returns what was read."""
    seen, until = "", time.monotonic() + SECONDS
    while text not in seen and time.monotonic() < until:
        if select.select([fd], [], [], 1)[0]:
            try:
                seen += os.read(fd, 4096).decode(errors="replace")
            except OSError:
                break
            seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]", "", seen)
    return seen


def main():
    shell, script = sys.argv[1:]
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", HOME="/nonexistent", COLUMNS="200", LINES="24")
        os.execvp(shell, START[shell])
    failed = 0
    os.write(fd, SETUP[shell].format(script).encode())
    wait_for(fd, "READY> ")
    for typed, expected in TYPED[shell]:
        os.write(fd, typed.encode())
        wait_for(fd, typed)
        os.write(fd, b"\t")
        seen = wait_for(fd, expected[len(typed):] if expected.startswith(typed) else expected.split(typed.split()[-1])[-1])
        line = typed + seen
        if not line.endswith(expected) and expected not in line:
            failed += 1
            print(f"{shell} completes '{typed}' as {line!r}, not '{expected}'")
        os.write(fd, b"\x15\n")
        wait_for(fd, "READY> ")
    os.write(fd, b"exit\n")
    os.close(fd)
    os.waitpid(pid, 0)
    return failed


if __name__ == "__main__":
    sys.exit(main())
