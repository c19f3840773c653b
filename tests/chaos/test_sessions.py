"""Test how sessions are expired, without a ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from verify.chaos.targets import sessions


@dataclass
class Stat:
    czxid: int
    ephemeralOwner: int  # noqa: N815 - the name that kazoo gives it


class Client:
    """A client that gives these answers to `exists` in order. An exception is raised, also `start_error` by `start`."""

    def __init__(self, *answers: Stat | Exception | None, start_error: Exception | None = None) -> None:
        self.answers = list(answers)
        self.start_error = start_error
        self.is_closed = False

    def start(self, timeout: float) -> None:
        if self.start_error is not None:
            raise self.start_error

    def exists(self, path: str) -> Stat | None:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stop(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("start_error", [ConnectionLoss(), KazooTimeoutError()], ids=repr)
def test_session_is_expired_although_connections_are_lost(
    start_error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered = Stat(7, 99)
    client = Client(ConnectionLoss(), *[registered] * 3, ConnectionLoss(), registered, None, None)
    takers = [Client(start_error=start_error), Client()]
    used: list[Client] = []
    session = (99, sessions.session_password(99))

    def connecting(hosts: str, client_id: tuple[int, bytes] | None = None) -> Client:
        if client_id is None:
            return client
        assert client_id == session
        used.append(takers.pop(0))
        return used[-1]

    monkeypatch.setattr(sessions, "_client", connecting)
    monkeypatch.setattr(sessions, "_GONE_S", 0)
    assert sessions.expire("zookeeper:2181", "/brokers/ids/1") == 7
    assert (len(used), client.answers) == (2, [])
    assert all(each.is_closed for each in (client, *used))
