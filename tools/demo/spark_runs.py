"""Runs the two Spark jobs as processes of their own, and ends them in every case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.supervised_process import Stop, end, start

_JOBS = Path(__file__).resolve().parents[2] / "scripts" / "jobs"
_POLITE_S = 10.0


class JobError(Exception):
    """A Spark job failed. The message is one line."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch with rows. `at_ms` is the wall-clock time of its end."""

    at_ms: int
    rows: int


@dataclass
class StreamProgress:
    """The events that the stream job has written so far, see `windowed_counts.py`.

    triggered      whether there was a batch at all
    batches        the batches with rows
    failed_tasks   the number of failed Spark tasks
    ended          the figures of its last event; None while it runs
    error          the reason if the job has reported a failure
    """

    triggered: bool = False
    batches: list[Batch] = field(default_factory=list)
    failed_tasks: int = 0
    ended: Mapping[str, Any] | None = None
    error: str | None = None

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    def add(self, event: Mapping[str, Any]) -> None:
        self.failed_tasks = max(self.failed_tasks, int(event.get("failed_tasks", 0)))
        match event["event"]:
            case "batch":
                self.triggered = True
                if event["rows"]:
                    self.batches.append(Batch(int(event["at"]), int(event["rows"])))
            case "ended":
                self.ended = event
            case "failed":
                self.error = str(event["error"])

    def between(self, from_ms: int, to_ms: int) -> int:
        """Return the number of batches with rows that ended from `from_ms` up to but not including `to_ms`."""
        return sum(from_ms <= batch.at_ms < to_ms for batch in self.batches)


class EventFile:
    """Reads a file of JSON lines while a job appends to it. Each call returns the lines completed since the last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_bytes = 0

    def new_events(self) -> list[dict[str, Any]]:
        """Return the events of the complete lines that no earlier call has returned; none if there is no file yet."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read_bytes)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


class SparkJob:
    """A running job of `scripts/jobs`, in a session of its own, which the terminal's Ctrl-C does not reach.

    The constructor starts the job; `log` gets all its output. `exit_status` is None while it runs.
    """

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as sink:
            command = [sys.executable, str(_JOBS / f"{name}.py"), *arguments]
            self._process = start(command, stdout=sink, environment=environment)

    @property
    def exit_status(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the job's end, at most `timeout_s`; return its exit status, or None if it still runs."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """Send SIGTERM to the job, wait at most 10 s, then kill what is left of its session, as the JVM."""
        end(self._process, Stop(signal.SIGTERM, _POLITE_S))

    def last_error_line(self) -> str:
        """Return the line of the job's log that best explains a failure: the last with an error, else the last."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        telling = [line for line in lines if "rror" in line]
        return (telling or lines or ["its log is empty"])[-1]


class StreamJob(SparkJob):
    """The running job `windowed_counts.py`, with its files in the new `directory`.

    progress   the progress as of the last `poll`
    counts     the directory of the Parquet files that it writes
    """

    def __init__(self, directory: Path, bootstrap_servers: str, topic: str, start_ms: int, watermark: str) -> None:
        directory.mkdir()
        self.progress = StreamProgress()
        self.counts = directory / "output" / "counts"
        self._events = EventFile(directory / "progress.jsonl")
        self._stop_file = directory / "stop.json"
        super().__init__(
            "windowed_counts",
            [
                *("--bootstrap-servers", bootstrap_servers),
                *("--topic", topic),
                *("--starting-timestamp", str(start_ms)),
                *("--output", str(directory / "output")),
                *("--checkpoint", str(directory / "checkpoint")),
                *("--progress", str(self._events.path)),
                *("--stop-file", str(self._stop_file)),
                *("--watermark", watermark),
                *("--master", "local[2,4]"),
            ],
            directory / "spark.log",
        )

    def poll(self) -> StreamProgress:
        """Read the new events, and return the present progress. Raises JobError if the job has failed."""
        for event in self._events.new_events():
            self.progress.add(event)
        status = self.exit_status
        if self.progress.error or (status and not self.progress.ended):
            raise JobError(f"{self.name} failed: {self.progress.error or self.last_error_line()} (see {self.log})")
        return self.progress

    def stop_at(self, end_offsets: Mapping[int, int]) -> None:
        """Make the job end when it has read up to these offsets (exclusive, by partition). The call does not wait."""
        new = self._stop_file.with_suffix(".new")
        new.write_text(json.dumps({str(partition): offset for partition, offset in end_offsets.items()}))
        new.rename(self._stop_file)


class AuditJob(SparkJob):
    """The running job `audit.py`, which compares the journal with the topic, with its files in the new `directory`."""

    def __init__(self, directory: Path, bootstrap_servers: str, topic: str, journal: Path) -> None:
        directory.mkdir()
        self._result = directory / "audit.json"
        self._events = EventFile(directory / "progress.jsonl")
        self._latest: Mapping[str, Any] = {}
        super().__init__(
            "audit",
            [
                *("--bootstrap-servers", bootstrap_servers),
                *("--topic", topic),
                *("--journal", str(journal)),
                *("--json", str(self._result)),
                *("--progress", str(self._events.path)),
                *("--master", "local[2,4]"),
            ],
            directory / "spark.log",
        )

    def state(self) -> str:
        """Return what Spark is doing, in a few words."""
        for event in self._events.new_events():
            self._latest = event
        if "stage" in self._latest:
            return "Spark has finished {done} of {tasks} tasks of its stage {stage}".format_map(self._latest)
        return "Spark is planning the join" if self._latest else "Spark is starting"

    def figures(self) -> Mapping[str, Any]:
        """Return the audit's result, once the job has ended. Raises JobError if there is none."""
        if self.exit_status not in (0, 1) or not self._result.exists():
            raise JobError(f"{self.name} failed: {self.last_error_line()} (see {self.log})")
        figures: dict[str, Any] = json.loads(self._result.read_text())
        return figures
