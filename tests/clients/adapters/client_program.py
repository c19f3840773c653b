"""Clients of other languages. A small program of that language drives the client and talks JSON with the test.

The program gets the addresses of the brokers as its last argument. Each line of its standard input is a command, an
object with the field `do`. Each command has one line of output, `{"result": …}`, or `{"error": …}` with the client's
own message. The records of `produce` follow the command, one a line, and end with `{"end": true}`. `read_group` and
`count_words` run until a further line arrives, and write lines with other names meanwhile. Keys and values of records
and headers are base64.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from tests.clients.adapters.foreign_client import ReadRecord, Record, RefusedError


class ProgramProcess:
    """The process of a program. Commands of several threads take turns."""

    def __init__(self, command: list[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._turn = threading.Lock()

    def ask(self, command: dict[str, Any], following: Iterable[dict[str, Any]] = ()) -> Any:
        """Return the result of the command. `RefusedError` is raised if the client reported an error."""
        with self._turn:
            self.write(command)
            for each in following:
                self.write(each)
            answer = self.read()
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["result"]

    def write(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def read(self) -> dict[str, Any]:
        """Return the next line, for which the program may take any time."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the program ended: {self.said()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def said(self) -> str:
        """Return the end of what the program wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read()[-4_000:].decode(errors="replace")

    def stop(self) -> None:
        """End the input, and kill the process if that does not end it."""
        if self._errors.closed:
            return
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


class ProgramClient:
    """Implements `ForeignClient`. The process starts with the first command and serves all later ones."""

    def __init__(
        self, name: str, version: str, command: Callable[[], list[str]], bootstrap_servers: str, *, is_idempotent: bool
    ) -> None:
        self.name = name
        self.version = version
        self.is_idempotent = is_idempotent
        self._command = command
        self._servers = bootstrap_servers
        self._running: ProgramProcess | None = None
        self._started: list[ProgramProcess] = []

    def start(self) -> ProgramProcess:
        """Start another process of the program. The process is stopped with this client, or before by the caller."""
        self._started.append(ProgramProcess([*self._command(), self._servers]))
        return self._started[-1]

    def ask(self, what: str, **arguments: Any) -> Any:
        """Return the result of a command."""
        return self._process().ask({"do": what, **arguments})

    def stop(self) -> None:
        for each in self._started:
            each.stop()

    def _process(self) -> ProgramProcess:
        if self._running is None:
            self._running = self.start()
        return self._running

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        codec: str | None = None,
        acks: str | None = None,
        is_idempotent: bool | None = None,
    ) -> list[Record]:
        chosen = {"compression.type": codec, "acks": acks, "enable.idempotence": is_idempotent}
        settings = {name: str(each).lower() for name, each in chosen.items() if each is not None}
        sent: list[Record] = []

        def lines() -> Iterable[dict[str, Any]]:
            for each in records:
                sent.append(each)
                yield {
                    "key": _text(each.key),
                    "value": _text(each.value),
                    "headers": [[name, _text(value)] for name, value in each.headers],
                    "timestamp_ms": each.timestamp_ms,
                }
            yield {"end": True}

        found = self._process().ask({"do": "produce", "topic": topic, "settings": settings}, lines())
        acknowledged = [each for each, stored in zip(sent, found["acknowledged"], strict=True) if stored]
        if found["error"] and not acknowledged:
            raise RefusedError(found["error"])
        return acknowledged

    def consume(
        self, topic: str, count: int, *, offset: int | None = None, timestamp_ms: int | None = None
    ) -> list[ReadRecord]:
        found = self.ask("consume", topic=topic, count=count, offset=offset, timestamp_ms=timestamp_ms)
        return [
            ReadRecord(
                each["offset"],
                each["timestamp_ms"],
                _bytes(each["key"]),
                _bytes(each["value"]),
                tuple((name, _bytes(value) or b"") for name, value in each["headers"]),
            )
            for each in found
        ]

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        found: int | None = self.ask("offset_for_time", topic=topic, timestamp_ms=timestamp_ms)
        return found

    def offset_range(self, topic: str) -> tuple[int, int]:
        start, end = self.ask("offset_range", topic=topic)
        return start, end

    def partitions(self, topic: str) -> list[int]:
        found: list[int] = self.ask("partitions", topic=topic)
        return found

    def topics(self) -> list[str]:
        return list(self.ask("topics"))

    def begin_transactions(self) -> None:
        self.ask("begin_transactions")


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
