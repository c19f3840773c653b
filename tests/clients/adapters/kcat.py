"""kcat, a program: records go in as lines, and come out as JSON."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from itertools import chain

import pytest

from tests.clients.adapters.foreign_client import TIMEOUT_S, ReadRecord, Record, RefusedError

PROGRAM = shutil.which("kcat") or shutil.which("kafkacat")
#: The mark of tests that run kcat.
needs_kcat = pytest.mark.skipif(PROGRAM is None, reason="this machine has no kcat (Debian: apt-get install kcat)")

_KEY, _END = "\x1f", "\x1e"


class Kcat:
    """Implements `ForeignClient`, for records that are text and all have the same headers."""

    name = "kcat"
    is_idempotent = False

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self.version = _version()

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        codec: str | None = None,
        acks: str | None = None,
        is_idempotent: bool | None = None,
    ) -> list[Record]:
        source = iter(records)
        first = next(source)
        chosen = {"compression.codec": codec, "acks": acks, "enable.idempotence": is_idempotent}
        options = [("-X", f"{name}={str(each).lower()}") for name, each in chosen.items() if each is not None]
        options += [("-H", f"{name}={value.decode()}") for name, value in first.headers]
        command = self._command("-P", "-t", topic, "-p", "0", "-Z", "-K", _KEY, "-D", _END, *chain(*options))
        sent: list[Record] = []
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stderr is not None
            for record in chain([first], source):
                assert record.timestamp_ms is None and record.headers == first.headers
                line = (record.key or b"") + _KEY.encode() + (record.value or b"") + _END.encode()
                process.stdin.write(line)
                process.stdin.flush()
                sent.append(record)
            process.stdin.close()
            errors = process.stderr.read().decode()
            process.wait(TIMEOUT_S)
        if process.returncode or "Delivery failed" in errors:
            raise RefusedError(errors)
        return sent

    def consume(
        self, topic: str, count: int, *, offset: int | None = None, timestamp_ms: int | None = None
    ) -> list[ReadRecord]:
        start = "beginning" if offset is None else str(offset)
        if timestamp_ms is not None:
            start = f"s@{timestamp_ms}"
        lines = self._run("-C", "-t", topic, "-p", "0", "-o", start, "-c", str(count), "-J").splitlines()
        return [_read(json.loads(line)) for line in lines]

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        offset = self._query(topic, timestamp_ms)
        return offset if offset >= 0 else None

    def offset_range(self, topic: str) -> tuple[int, int]:
        return self._query(topic, -2), self._query(topic, -1)

    def partitions(self, topic: str) -> list[int]:
        found = json.loads(self._run("-L", "-t", topic, "-J"))["topics"]
        return sorted(each["partition"] for each in found[0]["partitions"])

    def topics(self) -> list[str]:
        return [each["topic"] for each in json.loads(self._run("-L", "-J"))["topics"]]

    def begin_transactions(self) -> None:
        command = self._command(
            "-P", "-t", "none", "-X", "transactional.id=payments", "-X", "transaction.timeout.ms=9000"
        )
        ended = subprocess.run(command, input=b"x", capture_output=True, timeout=TIMEOUT_S, check=False)
        if ended.returncode:
            raise RefusedError(ended.stderr.decode())

    def _query(self, topic: str, timestamp_ms: int) -> int:
        shown = self._run("-Q", "-t", f"{topic}:0:{timestamp_ms}")
        found = re.search(r"offset (-?\d+)", shown)
        assert found, shown
        return int(found[1])

    def _run(self, *arguments: str) -> str:
        ended = subprocess.run(self._command(*arguments), capture_output=True, timeout=TIMEOUT_S, check=False)
        if ended.returncode:
            raise RefusedError(ended.stderr.decode())
        return ended.stdout.decode()

    def _command(self, *arguments: str) -> list[str]:
        assert PROGRAM is not None
        return [PROGRAM, "-b", self._servers, "-m", "30", *arguments]


@cache
def _version() -> str:
    assert PROGRAM is not None
    shown = subprocess.run([PROGRAM, "-V"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Version (\S+)", shown)
    return found[1] if found else "unknown"


def _read(row: dict[str, object]) -> ReadRecord:
    pairs = iter(row.get("headers") or ())  # type: ignore[call-overload]
    headers = tuple((name, value.encode()) for name, value in zip(pairs, pairs, strict=True))
    key, value = (None if each is None else str(each).encode() for each in (row["key"], row["payload"]))
    return ReadRecord(int(str(row["offset"])), int(str(row["ts"])), key, value, headers)
