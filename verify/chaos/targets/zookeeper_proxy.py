"""Relay connections to ZooKeeper; a rule can delay a request, or drop its answer and break the connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from struct import Struct
from types import TracebackType
from typing import Self

from tidelog.local.processes.ports import LOOPBACK
from tidelog.model import Endpoint

CREATE, SET_DATA, CHECK, MULTI, CREATE2 = 1, 5, 13, 14, 15
#: The error in a multi's answer for a version that did not match: −103.
BAD_VERSION = b"\xff\xff\xff\x99"

_LENGTH = Struct(">i")
_REQUEST = Struct(">ii")
#: The first part of a multi request: opcode, whether it is the last part, an unused error, the length of the path.
_FIRST_PART = Struct(">i?ii")
#: The header of an answer: xid, zxid, error.
_ANSWER = Struct(">iqi")
#: One part of the answer to a refused multi: −1, whether it is the last part, its error twice.
_REFUSED_PART = Struct(">i?ii")
_XID = Struct(">i")


@dataclass(eq=False)
class Request:
    """One request in flight. `body` is the whole request after its length. `answer` is ZooKeeper's answer once
    `answered` is set.
    """

    xid: int
    opcode: int
    body: bytes
    answer: bytes = b""
    answered: threading.Event = field(default_factory=threading.Event)

    def writes(self, path: str) -> bool:
        """Return whether the request is a create, a setData or a multi that contains this text, for example as part of
        a path.
        """
        return self.opcode in (CREATE, SET_DATA, MULTI, CREATE2) and path.encode() in self.body

    def creates_in_a_multi(self, path: str) -> bool:
        """Return whether the request is a multi that begins with the creation of a znode whose path has this text."""
        if self.opcode != MULTI:
            return False
        opcode, created = self._first_part()
        return opcode in (CREATE, CREATE2) and path in created

    def was_refused_by_a_check_of(self, path: str) -> bool:
        """Return whether the request begins with a check of this path's version, and ZooKeeper refused it because of
        that check.

        The request must be a multi that was answered with a refusal.
        """
        opcode, checked = self._first_part()
        _, _, error, _ = _REFUSED_PART.unpack_from(self.answer, _ANSWER.size)
        return opcode == CHECK and checked == path and _LENGTH.pack(error) == BAD_VERSION

    def _first_part(self) -> tuple[int, str]:
        """Return the opcode and the path of a multi's first part."""
        opcode, _, _, length = _FIRST_PART.unpack_from(self.body, _REQUEST.size)
        begin = _REQUEST.size + _FIRST_PART.size
        return opcode, self.body[begin : begin + length].decode()


class Fate(Enum):
    """The treatment of a request by the proxy."""

    PASSES = 0
    #: ZooKeeper executes the request, and the connection breaks before the answer is delivered.
    LOSES_ANSWER = 1


#: Called for each request, in the order of each connection. The request and all later ones wait for a returned event.
Rule = Callable[[Request], "Fate | threading.Event"]


def pass_all(request: Request) -> Fate:
    """Return `Fate.PASSES`, so that the proxy relays the request and its answer."""
    return Fate.PASSES


class ZooKeeperProxy:
    """The proxy, which relays from entering `with` to its exit. The exit closes all connections. All requests pass
    before `follow`.

    `address` is the address of this machine to which clients connect, at a port that the constructor chooses. The
    constructor raises OSError if it cannot listen there.
    """

    def __init__(self, zookeeper: Endpoint, address: str = LOOPBACK) -> None:
        self._zookeeper = zookeeper
        self._rule: Rule = pass_all
        self._listener = socket.create_server((address, 0), backlog=64)
        self._sockets: list[socket.socket] = [self._listener]
        #: The number of relayed connections so far.
        self.connections = 0

    @property
    def hosts(self) -> str:
        """Return the address to which clients connect, as `address:port`."""
        address, port = self._listener.getsockname()
        return f"{address}:{port}"

    def follow(self, rule: Rule) -> None:
        """Treat all later requests as `rule` says. Threads of the proxy call `rule`, one per connection."""
        self._rule = rule

    def fate_of(self, request: Request) -> Fate | threading.Event:
        """Return the fate of a request by the current rule, or the event for which the request must wait."""
        return self._rule(request)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="zookeeper-proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each in self._sockets:
            _shut(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((self._zookeeper.host, self._zookeeper.port), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self.connections += 1
            self._sockets += [client, server]
            connection = _Connection(client, server, self)
            for work in (connection.relay_requests, connection.relay_answers):
                threading.Thread(target=work, name="zookeeper-proxy", daemon=True).start()


class _Connection:
    def __init__(self, client: socket.socket, server: socket.socket, proxy: ZooKeeperProxy) -> None:
        self._client, self._server = client, server
        self._proxy = proxy
        self._open: dict[int, Request] = {}
        self._losing: Request | None = None

    def relay_requests(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._server.sendall(_frame(_read_frame(self._client)))  # the handshake has neither xid nor opcode
            while True:
                body = _read_frame(self._client)
                xid, opcode = _REQUEST.unpack_from(body)
                request = Request(xid, opcode, body)
                fate = self._proxy.fate_of(request)
                if isinstance(fate, threading.Event):
                    fate.wait()
                self._open[request.xid] = request
                if fate is Fate.LOSES_ANSWER:
                    self._losing = request
                self._server.sendall(_frame(body))
        self._end()

    def relay_answers(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._client.sendall(_frame(_read_frame(self._server)))
            while True:
                body = _read_frame(self._server)
                request = self._open.pop(_XID.unpack_from(body)[0], None)
                if request is not None:
                    request.answer = body
                    request.answered.set()
                    if request is self._losing:
                        break
                self._client.sendall(_frame(body))
        self._end()

    def _end(self) -> None:
        _shut(self._client)
        _shut(self._server)


def _frame(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _read_frame(connection: socket.socket) -> bytes:
    return _read(connection, _LENGTH.unpack(_read(connection, _LENGTH.size))[0])


def _read(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
