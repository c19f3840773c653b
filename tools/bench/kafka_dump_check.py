"""Has Kafka's dump tool read the logs that benchmarks wrote, outside their measured time.

A fast write counts only if Kafka can read it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.bench.results import NotMeasured
from tools.check.dump import dump
from tools.check.judge import Verdict, judge, log_files
from tools.check.toolbox import DUMP_TOOL, NotRun, kafka_command


class KafkaDumpCheck:
    """Reads logs with Kafka's dump tool, and keeps the outcome for the report.

    `missing` says why the tool could not be run. It is empty before the first read, and if the tool runs.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.missing = ""
        self._say = say
        self._files = 0
        self._read: set[str] = set()

    def read(self, what: str, directory: Path) -> None:
        """Read every file of the logs below `directory`. Logs with the same name `what` are read only once in all runs.

        If the tool cannot be run, only `missing` is set. Raises NotMeasured if the tool finds a fault, or no record.
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
        """Return the outcome as a line for the report; "" if no benchmark had a log to read."""
        if self.missing:
            return f"Kafka's dump: NOT RUN: {self.missing}"
        return f"Kafka's dump: {self._files:,} files read, no mismatch" if self._read else ""
