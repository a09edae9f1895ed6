"""Files that cannot be written."""

import errno
import pathlib
import sys

from traces import shown


def status_of(why):
    """Returns the exit status for an OSError: a disk that is full or broken is a failure, another one a name that is wrong."""
    return 1 if why.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO) else 2


def unwritten(path, why):
    """Ends the program with one line about a file that could not be written."""
    print(f"{pathlib.Path(sys.argv[0]).name}: {shown(path)}: cannot be written: {why.strerror or why}", file=sys.stderr)
    sys.exit(status_of(why))
