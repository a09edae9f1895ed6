"""Imports matplotlib to draw into files, for the programs of this folder that draw what a trace or a comparison has."""

import sys

from traces import stop

try:
    import matplotlib
except ImportError as why:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(sys.modules["__main__"].__doc__)
        sys.exit(0)
    stop(f"draws with matplotlib, which this Python cannot import ({why}); Debian has it as python3-matplotlib, for /usr/bin/python3")

matplotlib.use("Agg")
