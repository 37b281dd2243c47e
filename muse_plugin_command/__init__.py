"""The command ``muse-plugin``: a package of its own, since importing ``muse_plugin`` imports fairseq: seconds.

Nothing here imports torch, fairseq or ``muse_plugin`` before a sub-command does its work.
"""

import os
import sys

INTERRUPTED, BROKEN_PIPE = 128 + 2, 128 + 13  # what a shell reports for SIGINT and SIGPIPE


def main() -> int:
    """Runs the command line of this process.

    Returns:
        The exit code. Ctrl-C and a reader that has seen enough, such as ``head``, end it without a traceback.
    """
    # For the processes that a library starts by -c, such as those of multiprocessing: Python 3.11 leaves the current
    # folder off their module path then. What this package starts, it starts by a path, which is the same in 3.10.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    from muse_plugin_command import cli

    try:
        code = cli.main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return BROKEN_PIPE
    return code
