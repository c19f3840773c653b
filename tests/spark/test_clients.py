from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.spark import clients
from tidelog.spark.clients import Clients


class Made:
    """Stands for a consumer; counts how many there are."""

    all: list[Made] = []  # noqa: RUF012

    def __init__(self, bootstrap_servers: str, **settings: Any) -> None:
        self.settings, self.closed = settings, False
        Made.all.append(self)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(clients, "Consumer", Made)
    monkeypatch.setattr(clients, "Producer", Made)
    monkeypatch.setattr(clients, "_pool", {})
    monkeypatch.setattr(clients, "_pool_process", 0)
    monkeypatch.setattr("gc.freeze", lambda: None)
    Made.all.clear()
    yield


def test_a_worker_has_one_client_for_each_cluster_and_set_of_settings() -> None:
    first = Clients("a:1").consumer()
    assert Clients("a:1").consumer() is first
    assert Clients("a:1", {"client_id": "x"}).consumer() is not first
    assert Clients("b:1").consumer() is not first
    Clients("a:1").producer()
    assert len(Made.all) == 4


def test_user_settings_override_defaults() -> None:
    Clients("a:1", {"client_id": "x", "fetch_max_bytes": 5}).consumer(fetch_max_bytes=9, max_poll_records=1)
    assert Made.all[0].settings == {
        "auto_offset_reset": "none",
        "client_id": "x",
        "fetch_max_bytes": 5,
        "max_poll_records": 1,
    }


def test_forked_worker_creates_its_own_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = Clients("a:1").consumer()
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert Clients("a:1").consumer() is not parents


def test_worker_freezes_loaded_objects_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(1))
    for name in ("x", "y", "x"):
        Clients("a:1", {"client_id": name}).consumer()
    assert frozen == [1]


def test_worker_with_pooled_clients_ends_without_output() -> None:
    program = (
        "from tidelog.spark.clients import Clients\n"
        "Clients('127.0.0.1:1').consumer()\n"
        "Clients('127.0.0.1:1').producer()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
