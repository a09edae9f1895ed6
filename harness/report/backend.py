"""Imports matplotlib to draw into files, for the programs of this folder that draw what a trace or a comparison has."""

import pathlib
import sys


def stop(text):
    """Ends the program with one line; the exit status is that of bad input."""
    print(f"{pathlib.Path(sys.argv[0]).name}: {text}", file=sys.stderr)
    sys.exit(2)


try:
    import matplotlib
except ImportError as why:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(sys.modules["__main__"].__doc__)
        sys.exit(0)
    stop(f"draws with matplotlib, which this Python cannot import ({why}); Debian has it as python3-matplotlib, for /usr/bin/python3")

matplotlib.use("Agg")
