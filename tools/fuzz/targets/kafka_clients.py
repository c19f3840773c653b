"""Fuzzes a client's connection: any bytes of a broker, in the handshake and in answer to a request of each kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from typing import Any, cast

from tidelog.errors import TidelogError, UnsupportedVersionError
from tidelog.model import Buffer, Endpoint
from tidelog.protocol.codec import encode_body
from tidelog.protocol.kafka.client.connection import Connection
from tidelog.protocol.kafka.client.line import TcpLine
from tidelog.protocol.kafka.client.translation.apis import translation_of
from tidelog.protocol.kafka.client.translation.translation import Translation
from tidelog.protocol.kafka.extensions import EXTENSION_APIS, ExtensionResponse, carrier_of, extension_number
from tidelog.protocol.kafka.headers import encode_response
from tidelog.protocol.kafka.messages import metadata as kafka
from tidelog.protocol.kafka.primitives import uuid_to_text
from tidelog.protocol.kafka.schema import Response as KafkaResponse
from tidelog.protocol.kafka.schema import Versions
from tidelog.protocol.messages import FetchPartition, FetchRequest, Request
from tidelog.protocol.operator_messages import BrokerIdentityRequest, BrokerIdentityResponse
from tools.fuzz.examples import examples
from tools.fuzz.kafka_examples import kafka_example
from tools.fuzz.targets.frames import REQUESTS
from tools.fuzz.targets.target import Target, check

_BROKER = Endpoint("127.0.0.1", 9092)
_PIECES = (65_536, 1, 3, 4, 17, 1000)
_TIMEOUT_MS = 60_000
#: Requests that are sent once the connection is open.
_SENT = 2
#: Turns of the event loop in which a coroutine acts on what it has received.
_TURNS = 5
_HUNG_S = 2.0
_TOPIC_ID = uuid_to_text(bytes(range(16)))


@cache
def _requests() -> Sequence[Request]:
    """Return a request of each kind that the client can send, and a second one with empty fields where that differs."""
    by_id = FetchRequest(-1, 500, 1, 1 << 20, (FetchPartition("t", 0, 3, 7, 1 << 20, topic_id=_TOPIC_ID),))
    return [by_id, *(each for cls in REQUESTS for each in examples(cls) if _is_sendable(each))]


def _is_sendable(request: Request) -> bool:
    """Return whether the client has a translation that can write the request in some version."""
    try:
        translation = translation_of(request, ())
        translation.write(request, translation.versions(request).last)
    except (KeyError, ValueError, TidelogError):  # a request of brokers, or an example that is no topic id
        return False
    return True


class _Transport(asyncio.Transport):
    """A transport that counts the frames that the client writes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False

    def get_write_buffer_size(self) -> int:
        return 0

    def writelines(self, list_of_data: Any) -> None:
        check(not self.is_closed, "the client writes to a closed connection")

    def abort(self) -> None:
        self.is_closed = True


class _Line(TcpLine):
    """The client's end of a connection without a network."""

    async def _connect(self) -> None:
        self.connection_made(_Transport())

    async def receive(self, data: bytes, piece: int) -> None:
        """Receive bytes of the broker in pieces, as far as the connection stays open."""
        await _turns()
        while data and self._is_open:
            space = self.get_buffer(-1)
            size = min(piece, len(space), len(data))
            space[:size] = data[:size]
            self.buffer_updated(size)
            data = data[size:]
            await asyncio.sleep(0)
        await _turns()


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_fail)
    return loop


def _fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Keep an error that asyncio would only log. `run_client` raises it."""
    _unexpected.append(context)


_unexpected: list[dict[str, Any]] = []


def run_client(data: bytes) -> None:
    """Check that each request gets an answer of its kind or a TidelogError, and that a closed connection holds nothing.

    The first byte chooses the request, and the second one the size of the pieces in which bytes arrive. The rest is
    what the broker sends at each point at which the client waits, as `join_all` writes it.
    """
    if len(data) < 2:
        return
    requests = _requests()
    request = requests[data[0] % len(requests)]
    _unexpected.clear()
    _loop().run_until_complete(_run(request, _PIECES[data[1] % len(_PIECES)], split_all(data[2:])))
    check(not _unexpected, _unexpected)


async def _run(request: Request, piece: int, sent: list[bytes]) -> None:
    lines: list[_Line] = []

    def dial(*arguments: Any) -> _Line:
        lines.append(_Line(*arguments))
        return lines[-1]

    opening = asyncio.create_task(Connection.open(_BROKER, client_id="fuzz", timeout_ms=_TIMEOUT_MS, dial=dial))
    await _turns()
    (line,) = lines
    while sent and not opening.done():
        await line.receive(sent.pop(0), piece)
    if not opening.done():
        line.connection_lost(None)
    try:
        async with asyncio.timeout(_HUNG_S):
            connection = await opening
    except TidelogError:
        await _check_closed(line)
        return
    answers = []
    for _ in range(_SENT):
        answers.append(connection.send(request, timeout_ms=_TIMEOUT_MS))
        await line.receive(sent.pop(0) if sent else b"", piece)
    for rest in sent:
        await line.receive(rest, piece)
    line.connection_lost(None)
    for answer in answers:
        check(answer.done(), f"{request} waits for an answer on a closed connection")
        with suppress(TidelogError):
            check(isinstance(answer.result(), request.response), f"{answer.result()} answers {request}")
    check(connection.closed, "the connection is open without a transport")
    await _check_closed(line)


async def _check_closed(line: _Line) -> None:
    await _turns()
    check(not line._is_open, "the line of a failed or closed connection is open")
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    check(not tasks, f"tasks outlive their connection: {tasks}")
    loop: Any = asyncio.get_running_loop()
    timers = [each for each in loop._scheduled if not each.cancelled()]
    check(not timers, f"timers outlive their connection: {timers}")


def split_all(data: bytes) -> list[bytes]:
    """Return the byte strings that any input stands for, as `join_all` writes them."""
    parts = []
    while data:
        end = 2 + int.from_bytes(data[:2])
        parts.append(data[2:end])
        data = data[end:]
    return parts


# --- seeds ---------------------------------------------------------------------------------------------------------


def join_all(parts: Sequence[bytes]) -> bytes:
    """Return byte strings as one, each after its length as an int16."""
    return b"".join(len(part).to_bytes(2) + part for part in parts)


def _frame(response: KafkaResponse, version: int, correlation_id: int) -> bytes:
    return b"".join(cast(list[Buffer], encode_response(response, version, correlation_id)))


def _versions_of(apis: dict[int, Versions]) -> bytes:
    keys = tuple(kafka.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in apis.items())
    return _frame(kafka.ApiVersionsResponse(error_code=0, api_keys=keys), 3, 1)


_IDENTITY = carrier_of(BrokerIdentityRequest)


def _handshake(api: int, version: int, *, has_extensions: bool) -> list[bytes]:
    """Return the responses of a broker that supports one API in one version."""
    apis = {kafka.ApiVersionsRequest.api: Versions(0, 3), api: Versions(version, version)}
    if not has_extensions:
        return [_versions_of(apis)]
    identity = _IDENTITY.response(error_code=0, body=encode_body(BrokerIdentityResponse("c", 1)))
    return [_versions_of({_IDENTITY.api: Versions(0, 0), **apis}), _frame(identity, 0, 2)]


def _responses(request: Request, translation: Translation, version: int) -> Iterator[KafkaResponse]:
    """Yield responses with an error, and without one if the response has an error of its own."""
    cls: type[KafkaResponse] = translation.request.response
    if issubclass(cls, ExtensionResponse):
        yield cls(error_code=3, error_message="there is no such topic")
        for answer in examples(request.response):
            with suppress(TidelogError):
                yield cls(error_code=0, body=encode_body(answer, version))
        return
    example = kafka_example(cls, version)
    yield example
    present = {each.name for each in fields(example)}
    yield replace(example, **{name: 0 for name in ("error_code", "throttle_time_ms") if name in present})


def _seeds() -> list[bytes]:
    found = [
        b"\0\0"
        + join_all([_frame(kafka.ApiVersionsResponse(error_code=UnsupportedVersionError.code, api_keys=()), 0, 1)])
    ]
    for number, request in enumerate(_requests()):
        for offered in ((), [extension_number(each) for each in EXTENSION_APIS]):
            translation = translation_of(request, offered)
            api = translation.request.api
            first, last = translation.versions(request)
            for version in range(first, last + 1):
                has_extensions = bool(offered)
                handshake = _handshake(api, version, has_extensions=has_extensions)
                for response in _responses(request, translation, version):
                    answers = [_frame(response, version, len(handshake) + 1 + place) for place in range(_SENT)]
                    found.append(bytes((number, 0)) + join_all([*handshake, *answers]))
    return found


TARGETS = (
    Target(
        "kafka-client",
        "brokers' bytes at a client's connection",
        run_client,
        _seeds,
        ("tidelog.protocol",),
        (
            b"\xff\xff\xff\xff",
            b"\x7f\xff\xff\xff",
            b"\xff\xff",
            b"\x7f\xff",
            b"\0\0\0\1",
            b"\0\0\0\2",
            b"\0\0\0\3",
            b"\xc0",
            b"\x90",
        ),
    ),
)
