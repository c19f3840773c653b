"""The command `tidelog`."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the console script, which ends the process with the exit status of the command line.

    Ctrl-C during the import, or after the command, ends the process silently by the signal's default action. The status
    is 1 if the packages of the command line are not installed.
    """
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tidelog.extras import missing

    if line := missing("cli", "the command line"):
        sys.exit(f"tidelog: {line}")
    from tidelog.cli.program import main as program

    signal.signal(signal.SIGINT, interrupt)
    try:
        program()
    finally:
        if interrupt is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
