"""`python -P -m node --config FILE…`: one broker in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """As `node.main.main`. Where a Ctrl-C comes before that listens for it, nothing is there to be left politely."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from node.main import main as program

    return program()


if __name__ == "__main__":
    sys.exit(main())
