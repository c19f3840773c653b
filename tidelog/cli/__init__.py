"""The command `tidelog`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the console script, which ends the process with the exit status of the command line.

    Ctrl-C during the import, or after the command, ends the process silently by the signal's default action.
    """
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tidelog.cli.program import main as program

    signal.signal(signal.SIGINT, interrupt)
    try:
        program()
    finally:
        if interrupt is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
