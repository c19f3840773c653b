"""Ports of clusters that are started at the same time."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from tidelog.errors import LocalError
from tidelog.local.processes import ports
from tidelog.local.processes.ports import LOOPBACK, choose_port, port_is_free


def test_chosen_port_is_reserved_until_its_process_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as held:
        port = choose_port(held=held)
        monkeypatch.setattr(ports.random, "choice", lambda candidates: port)
        with pytest.raises(LocalError, match="no free port"):
            choose_port()
        assert port_is_free(port), "for whom it was chosen"
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((LOOPBACK, port))
            server.listen(1)
            held.close()
            assert not port_is_free(port)
            with pytest.raises(LocalError, match="no free port"):
                choose_port()
            with socket.create_connection((LOOPBACK, port), 10):
                pass


def test_released_port_is_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as held:
        port = choose_port(held=held)
    monkeypatch.setattr(ports.random, "choice", lambda candidates: port)
    assert choose_port() == port
