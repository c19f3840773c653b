"""`scripts/compose-check`: see there."""

from __future__ import annotations

import argparse
import sys
import time

from tidelog.errors import TidelogError
from tools.compose_check.engine import Containers, Failed, NotRun
from tools.compose_check.scenario import Story

FAILED, NOT_RUN = 1, 3


def main() -> int:
    """0 all held, 1 something did not, 3 not run."""
    parser = argparse.ArgumentParser(prog="compose-check", description="docker-compose.yml, run for real")
    parser.add_argument("--build-args", default="", help="what podman build needs besides, in one argument")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    arguments = parser.parse_args()
    started = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {line}", flush=True)

    try:
        containers = Containers(arguments.build_args)
    except NotRun as reason:
        print(f"compose-check: not run: {reason}", file=sys.stderr)
        return NOT_RUN
    try:
        Story(containers, tell).run()
    except (Failed, TidelogError) as error:
        print(f"compose-check: {error}", file=sys.stderr)
        return FAILED
    finally:
        if not arguments.keep:
            containers.down("--volumes")
    tell("all held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
