"""Files that appear whole or not at all, and what is said of those that cannot be written."""

import contextlib
import errno
import os
import pathlib
import shutil
import sys

from traces import shown


@contextlib.contextmanager
def replacing(path):
    """Yields the name of a new file, which replaces the one at path when the block ends, unless the block removed it. A link stays and its
    target is replaced; a file keeps its mode. A block that raises leaves the old file and nothing else."""
    target = os.path.realpath(path)
    if os.path.lexists(target) and not os.path.isfile(target):
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    folder, name = os.path.split(target)
    partial = os.path.join(folder, f"{name[:60]}.{os.getpid()}.partial")
    try:
        yield partial
        if os.path.exists(partial):
            if os.path.exists(target):
                shutil.copymode(target, partial)
            os.replace(partial, target)
    except OSError as why:
        why.filename = str(path)
        raise
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def status_of(why):
    """Returns the exit status for an OSError: a disk that is full or broken, or a pipe without a reader, is a failure, another one a name that is wrong."""
    return 1 if why.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE) else 2


def unwritten(path, why):
    """Ends the program with one line about a file that could not be written."""
    print(f"{pathlib.Path(sys.argv[0]).name}: {shown(path)}: cannot be written: {why.strerror or why}", file=sys.stderr)
    sys.exit(status_of(why))
