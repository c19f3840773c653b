"""The command `tidelog`."""

from __future__ import annotations

import signal


def main() -> None:
    """The console script: where our own words for a Ctrl-C are not loaded yet, or not any more, it ends us silently."""
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
