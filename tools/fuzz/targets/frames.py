"""Fuzzes the frames of the protocol between brokers: the codec, and a broker's listener."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from node.net.identity import Identity
from node.net.server import RequestContext, Server
from node.net.zeromq.router import NOTHING_UNREAD, OnMessage, Unread
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
    """Return frames as one input: the number of further frames, each of these after its length, then the first frame.

    The inverse of `split` for up to three further frames.
    """
    first, *others = frames
    parts = [len(others).to_bytes(1)]
    for frame in others:
        parts += [len(frame).to_bytes(_LENGTH), bytes(frame)]
    return b"".join([*parts, bytes(first)])


def split(data: bytes) -> list[bytes]:
    """Return the frames, one to four, that any input stands for, as `join` writes them."""
    frames = []
    at = 1
    for _ in range(data[0] % 4 if data else 0):
        length = int.from_bytes(data[at : at + _LENGTH])
        frames.append(data[at + _LENGTH : at + _LENGTH + length])
        at += _LENGTH + length
    return [data[at:], *frames]


def run_request(data: bytes) -> None:
    """Check that a decoded request can be encoded and decoded again, or that decoding raises ProtocolError."""
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
    """Check a response like a request. The first byte chooses its class, which a broker knows from its request."""
    cls = RESPONSES[data[0] % len(RESPONSES)] if data else RESPONSES[0]
    try:
        header, body = decode_response(split(data[1:]))
        message: Message = body.read(cls)
    except ProtocolError:
        return
    again_header, again = decode_response(encode(header, message))
    check((again_header, again.read(cls)) == (header, message), f"{message} changes when it is sent on")


class _FakeSocket:
    """A listening socket without a network: `take` delivers a message, and `sent` has the messages of the server."""

    endpoint = Endpoint("127.0.0.1", 1)

    def __init__(self, endpoint: Endpoint, take: OnMessage, settle: Callable[[], None]) -> None:
        self.take = take
        self.sent: list[list[Buffer]] = []

    def send(self, peer: bytes, frames: list[Buffer]) -> bool:
        self.sent.append(frames)
        return True

    def unread(self, peer: bytes) -> Unread:
        return NOTHING_UNREAD

    def close(self) -> None:
        """Close nothing, because nothing is open."""


class _Listener:
    """A broker's listener with a handler that refuses every request, so that each complete message is answered."""

    def __init__(self) -> None:
        sockets: list[_FakeSocket] = []

        def listen(
            endpoint: Endpoint, take: OnMessage, settle: Callable[[], None], on_kafka: Callable[[], None]
        ) -> _FakeSocket:
            sockets.append(_FakeSocket(endpoint, take, settle))
            return sockets[-1]

        identity = Identity("c", 1, 101)
        self._server = Server(
            Endpoint("127.0.0.1", 1),
            identity,
            self._handle,
            SystemClock(),
            listen=listen,
        )
        self._server.start()
        self._socket = sockets[0]

    @staticmethod
    def _handle(request: Request, context: RequestContext) -> Response | DeferredResponse | None:
        raise InvalidRequestError(str(request)[:100])

    def deliver(self, frames: Sequence[bytes]) -> None:
        self._socket.sent.clear()
        self._socket.take(b"peer", [memoryview(frame) for frame in frames])
        for answer in self._socket.sent:
            header, _ = decode_response(answer)
            check(header.error_code != UnknownServerError.code, header.error_message)


@cache
def _listener() -> _Listener:
    return _Listener()


def run_server(data: bytes) -> None:
    """Check that the listener answers or stays silent, and never answers UNKNOWN_SERVER_ERROR."""
    _listener().deliver(split(data))


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


_PACKAGES = ("tidelog", "node")
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
    Target(
        "request",
        "frames that a broker decodes as a request of another one",
        run_request,
        _request_seeds,
        _PACKAGES,
        _WORDS,
    ),
    Target(
        "response",
        "frames that a broker decodes as a response of another one",
        run_response,
        _response_seeds,
        _PACKAGES,
        _WORDS,
    ),
    Target("server", "frames at the listener for brokers", run_server, _request_seeds, _PACKAGES, _WORDS),
)
