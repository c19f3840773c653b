"""Frames of the native port: what the codec makes of them, and what a broker's door does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from node.identity import Identity
from node.net.router import NOTHING_UNREAD, OnMessage, Unread
from node.net.server import RequestContext, Server
from node.runtime.deferred_response import DeferredResponse
from tidelog.clock import SystemClock
from tidelog.errors import InvalidRequestError, ProtocolError, UnknownServerError
from tidelog.model import Buffer, Endpoint
from tidelog.protocol.admin_messages import ADMIN_REQUESTS
from tidelog.protocol.codec import RequestHeader, ResponseHeader, decode_request, decode_response, encode
from tidelog.protocol.control_messages import CONTROL_REQUESTS
from tidelog.protocol.group_messages import GROUP_REQUESTS
from tidelog.protocol.list_offsets_v0_messages import SEGMENT_REQUESTS
from tidelog.protocol.messages import CLIENT_REQUESTS, Message, Request, Response
from tidelog.protocol.operator_messages import OPERATOR_REQUESTS
from tidelog.protocol.partition_messages import PARTITION_REQUESTS
from tools.fuzz.examples import examples
from tools.fuzz.targets.target import Target, check

REQUESTS: tuple[type[Request], ...] = (
    *CLIENT_REQUESTS,
    *ADMIN_REQUESTS,
    *GROUP_REQUESTS,
    *OPERATOR_REQUESTS,
    *PARTITION_REQUESTS,
    *SEGMENT_REQUESTS,
    *CONTROL_REQUESTS,
)
RESPONSES: tuple[type[Response], ...] = tuple(dict.fromkeys(request.response for request in REQUESTS))
_BY_API = {request.api: request for request in REQUESTS}
_LENGTH = 2


def join(frames: Sequence[Buffer]) -> bytes:
    """Frames as one input: each behind its length, but for the first, which is the longest, at the end."""
    first, *others = frames
    parts = [len(others).to_bytes(1)]
    for frame in others:
        parts += [len(frame).to_bytes(_LENGTH), bytes(frame)]
    return b"".join([*parts, bytes(first)])


def split(data: bytes) -> list[bytes]:
    """The frames of any input at all."""
    frames = []
    at = 1
    for _ in range(data[0] % 4 if data else 0):
        length = int.from_bytes(data[at : at + _LENGTH])
        frames.append(data[at + _LENGTH : at + _LENGTH + length])
        at += _LENGTH + length
    return [data[at:], *frames]


def run_request(data: bytes) -> None:
    """A request is whole and of the right types, so that it can be sent again as it came; or a ProtocolError."""
    try:
        header, body = decode_request(split(data))
        cls = _BY_API.get(header.api_key)  # type: ignore[call-overload]
        message = body.read(cls) if cls else None
    except ProtocolError:
        return
    if message is not None:
        again_header, again = decode_request(encode(header, message))
        check((again_header, again.read(type(message))) == (header, message), f"{message} changes when it is sent on")


def run_response(data: bytes) -> None:
    """As a request; which response it is, a client knows from what it asked."""
    cls = RESPONSES[data[0] % len(RESPONSES)] if data else RESPONSES[0]
    try:
        header, body = decode_response(split(data[1:]))
        message: Message = body.read(cls)
    except ProtocolError:
        return
    again_header, again = decode_response(encode(header, message))
    check((again_header, again.read(cls)) == (header, message), f"{message} changes when it is sent on")


class _Line:
    """Where a server listens: it takes what it is given, and keeps what it answers."""

    endpoint = Endpoint("127.0.0.1", 1)

    def __init__(self, endpoint: Endpoint, take: OnMessage, settle: Callable[[], None]) -> None:
        self.take = take
        self.sent: list[list[Buffer]] = []

    def send(self, peer: bytes, frames: list[Buffer]) -> None:
        self.sent.append(frames)

    def unread(self, peer: bytes) -> Unread:
        return NOTHING_UNREAD

    def close(self) -> None:
        """Nothing is open."""


class _Door:
    """A broker's door, behind which every request is refused at once: what comes so far is a whole message."""

    def __init__(self, *, between_brokers: bool) -> None:
        lines: list[_Line] = []

        def listen(endpoint: Endpoint, take: OnMessage, settle: Callable[[], None]) -> _Line:
            lines.append(_Line(endpoint, take, settle))
            return lines[-1]

        identity = Identity("c", 1, 101)
        self._server = Server(
            Endpoint("127.0.0.1", 1),
            identity,
            self._handle,
            SystemClock(),
            between_brokers=between_brokers,
            listen=listen,
        )
        self._server.start()
        self._line = lines[0]

    @staticmethod
    def _handle(request: Request, context: RequestContext) -> Response | DeferredResponse | None:
        raise InvalidRequestError(str(request)[:100])

    def knock(self, frames: Sequence[bytes]) -> None:
        self._line.sent.clear()
        self._line.take(b"peer", [memoryview(frame) for frame in frames])
        for answer in self._line.sent:
            header, _ = decode_response(answer)
            check(header.error_code != UnknownServerError.code, header.error_message)


@cache
def _doors() -> tuple[_Door, _Door]:
    return _Door(between_brokers=False), _Door(between_brokers=True)


def run_server(data: bytes) -> None:
    """Both doors answer, or say nothing; never UNKNOWN_SERVER_ERROR."""
    for door in _doors():
        door.knock(split(data))


def _request_seeds() -> list[bytes]:
    return [join(encode(_header(message), message)) for cls in REQUESTS for message in examples(cls)]


def _header(message: Request) -> RequestHeader:
    return RequestHeader(message.api, message.versions[1], 7, "fuzz", "", -1, -1, -1)


def _response_seeds() -> list[bytes]:
    return [
        bytes([index]) + join(encode(ResponseHeader(7, 0, None), message))
        for index, cls in enumerate(RESPONSES)
        for message in examples(cls)
    ] + [b"\0" + join(encode(ResponseHeader(7, 3, "there is no such topic")))]


_ROOMS = ("tidelog", "node")
_WORDS = (
    b"\xc0",
    b"\xc2",
    b"\x90",
    b"\x80",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd3\x80\0\0\0\0\0\0\0",
    b"\xdd\0\0\0\1",
)

TARGETS = (
    Target("request", "frames that a broker takes for a request", run_request, _request_seeds, _ROOMS, _WORDS),
    Target("response", "frames that a client takes for an answer", run_response, _response_seeds, _ROOMS, _WORDS),
    Target("server", "frames at both doors of a broker", run_server, _request_seeds, _ROOMS, _WORDS),
)
