"""Kafka's dump tool reads what the benchmarks wrote, beside their clocks: a log that only we can read is not fast."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.bench.results import NotMeasured
from tools.check.dump import dump
from tools.check.judge import Verdict, judge, log_files
from tools.check.toolbox import DUMP_TOOL, NotRun, kafka_command


class Judge:
    """`missing`: why the tool could not be run; empty while nobody asked for it, and where it runs."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.missing = ""
        self._say = say
        self._files = 0
        self._read: set[str] = set()

    def read(self, what: str, directory: Path) -> None:
        """Every file of a log below `directory`. The same again, by name, in another run is not read again.

        NotMeasured where the tool finds fault with one, or there is none.
        """
        if what in self._read or self.missing:
            return
        try:
            command = kafka_command(DUMP_TOOL)
        except NotRun as reason:
            self.missing = str(reason)
            return
        self._say(f"    Kafka's dump reads the {what} …")
        verdict = Verdict()
        for start, files in log_files(directory).items():
            judge(start, files, partial(dump, command), verdict)
        if verdict.faults:
            raise NotMeasured(
                f"Kafka's dump of the {what}: {verdict.faults[0].path}: {verdict.faults[0].complaints[0]}"
            )
        if not verdict.counts["records"]:
            raise NotMeasured(f"Kafka's dump found no record in the {what}")
        self._files += verdict.files.total()
        self._read.add(what)

    def in_words(self) -> str:
        """Empty where no benchmark had something to read."""
        if self.missing:
            return f"Kafka's dump: NOT RUN: {self.missing}"
        return f"Kafka's dump: {self._files:,} files read, no mismatch" if self._read else ""
