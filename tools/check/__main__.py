"""Checks the given directories with Kafka's dump tool, and prints a line for each kind of file."""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

from tools.check.dump import dump
from tools.check.judge import KINDS, Verdict, judge, log_files
from tools.check.toolbox import DUMP_TOOL, KAFKA_VERSION, NotRun, kafka_command

_CLEAN, _FAULTY, _NOT_RUN = 0, 1, 3
_COMPLAINTS_SHOWN = 3


def main() -> int:
    arguments = argparse.ArgumentParser(prog="scripts/check", description="Has Kafka's dump tool read brokers' files.")
    arguments.add_argument("directories", nargs="+", type=Path, metavar="DIRECTORY", help="a broker's data directory")
    directories: list[Path] = arguments.parse_args().directories
    for directory in directories:
        if not directory.is_dir():
            arguments.error(f"{directory} is not a directory")
    try:
        command = kafka_command(DUMP_TOOL)
    except NotRun as reason:
        print(f"scripts/check: not run: {reason}", file=sys.stderr)
        return _NOT_RUN
    verdict = Verdict()
    for directory in directories:
        found = log_files(directory)
        if not found:
            print(f"{directory}: contains no files of a log")
            return _FAULTY
        for start, files in found.items():
            judge(start, files, functools.partial(dump, command), verdict)
    report(verdict)
    return _FAULTY if verdict.faults else _CLEAN


def report(verdict: Verdict) -> None:
    counts = verdict.counts
    for path, complaints in verdict.faults:
        print(f"{path}:")
        for complaint in complaints[:_COMPLAINTS_SHOWN]:
            print(f"    {complaint}")
        if len(complaints) > _COMPLAINTS_SHOWN:
            print(f"    and {len(complaints) - _COMPLAINTS_SHOWN:,} lines more")
    held = {
        ".log": f"{counts['.log']:,} batches, {counts['records']:,} records",
        ".index": f"{counts['.index']:,} entries",
        ".timeindex": f"{counts['.timeindex']:,} entries",
        ".snapshot": f"{counts['.snapshot']:,} producers",
    }
    for kind in KINDS:
        wrong = sum(fault.path.suffix == kind for fault in verdict.faults)
        ending = f"; {wrong} WRONG" if wrong else ""
        print(f"{kind:<11}{verdict.files[kind]:>6,} files   {held[kind]}{ending}")
    if not verdict.faults:
        print(f"Kafka {KAFKA_VERSION} reads them all and finds no mismatch.")
    elif verdict.stopped_early:
        print(f"Kafka {KAFKA_VERSION} finds {len(verdict.faults)} files wrong; the rest was not read.")
    else:
        print(f"Kafka {KAFKA_VERSION} finds {len(verdict.faults)} of {sum(verdict.files.values()):,} files wrong.")


if __name__ == "__main__":
    sys.exit(main())
