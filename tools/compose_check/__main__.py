"""Runs the command line of `scripts/compose-check`."""

from __future__ import annotations

import argparse
import sys
import time

from tidelog.errors import TidelogError
from tools.compose_check.engine import Containers, Failed, NotRun
from tools.compose_check.scenario import Scenario

FAILED, NOT_RUN = 1, 3


def main() -> int:
    """Return 0 if all promises held, 1 if one did not, 3 if the check could not run."""
    parser = argparse.ArgumentParser(
        prog="compose-check", description="Checks what docker-compose.yml promises, on real containers."
    )
    parser.add_argument("--build-args", default="", help="further arguments for podman build, in one argument")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    arguments = parser.parse_args()
    started = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {line}", flush=True)

    try:
        containers = Containers(arguments.build_args)
    except NotRun as reason:
        print(f"compose-check: not run: {reason}", file=sys.stderr)
        return NOT_RUN
    try:
        Scenario(containers, report).run()
    except NotRun as reason:
        print(f"compose-check: not run: {reason}", file=sys.stderr)
        return NOT_RUN
    except (Failed, TidelogError) as error:
        print(f"compose-check: {error}", file=sys.stderr)
        return FAILED
    finally:
        if not arguments.keep:
            containers.down("--volumes")
    report("all promises held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
