"""Write the report of a run again: `python -m verify.chaos.report DIR`."""

from __future__ import annotations

import sys
from pathlib import Path

from tidelog.errors import HistoryError
from verify.chaos.report import write_report


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print(
            "usage: python -m verify.chaos.report DIR (a directory that `tidelog chaos --report` wrote)",
            file=sys.stderr,
        )
        return 2
    try:
        print(write_report(Path(arguments[0])))
    except (HistoryError, OSError) as error:
        print(f"cannot write the report: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
