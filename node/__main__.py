"""`python -P -m node --config FILE…`: one broker in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run `node.process.main.main` and return its exit status, or 1 if packages of a broker are not installed.

    A Ctrl-C that arrives before `node.process.main` handles it ends the process at once, because nothing has to be
    closed yet.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tidelog.extras import missing

    if line := missing("broker", "a broker"):
        print(f"broker: {line}", file=sys.stderr)
        return 1
    from node.process.main import main as run_broker

    return run_broker()


if __name__ == "__main__":
    sys.exit(main())
