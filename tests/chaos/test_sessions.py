"""Test how sessions are expired, without a ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from kazoo.exceptions import ConnectionLoss

from verify.chaos.targets import sessions


@dataclass
class Stat:
    czxid: int
    ephemeralOwner: int  # noqa: N815 - the name that kazoo gives it


class Client:
    """A client that gives these answers to `exists` in order; an exception is raised."""

    def __init__(self, *answers: Stat | Exception | None) -> None:
        self.answers = list(answers)

    def exists(self, path: str) -> Stat | None:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_session_is_expired_although_connections_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    registered = Stat(7, 99)
    client = Client(ConnectionLoss(), registered, registered, ConnectionLoss(), None, None)
    closed: list[int] = []

    @contextmanager
    def connected(hosts: str, timeout_s: float) -> Iterator[Client]:
        yield client

    monkeypatch.setattr(sessions, "_connected", connected)
    monkeypatch.setattr(sessions, "_close", lambda hosts, session: closed.append(session))
    assert sessions.expire("zookeeper:2181", "/brokers/ids/1") == 7
    assert (closed, client.answers) == ([99], [])
