"""Random frames at the listener for clients, which answers them or closes the connection. No other client notices."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import fields
from struct import pack, unpack_from
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.kafka.translation.extensions import EXTENSION_REQUESTS
from tests.node.client_requests import batch_of
from tests.node.hostile.live_listeners import Canary, LiveListeners, resident_bytes
from tests.node.hostile.test_frames import AIMED, MAX_GROWTH_BYTES, corpus, numbers, trees
from tests.node.kafka.live_listener import framed
from tests.tidelog.any_message import ANY, REQUESTS, values_of
from tidelog.errors import TidelogError
from tidelog.model import Buffer
from tidelog.protocol.kafka.client.translation.apis import translation_of
from tidelog.protocol.kafka.extensions import carrier_of
from tidelog.protocol.kafka.headers import encode_request
from tidelog.protocol.messages import Message, Request

#: The requests that clients send, as Kafka's messages or as extensions.
OF_CLIENTS = [cls for cls in REQUESTS if not cls.between_brokers and cls.api.name != "API_VERSIONS"]
CARRIERS = [carrier_of(cls) for cls in EXTENSION_REQUESTS]
EXTENSION_APIS = frozenset(carrier.api for carrier in CARRIERS)


@st.composite
def any_request(draw: st.DrawFn) -> bytes:
    """Draw a request that our client can write, with random fields, as Kafka's message or as an extension."""
    cls: type[Request] = draw(st.sampled_from(OF_CLIENTS))
    message = draw(values_of(cls, draw(st.sampled_from([ANY, AIMED, AIMED]))))
    try:
        translation = translation_of(message, draw(st.sampled_from([EXTENSION_APIS, frozenset[int]()])))
        low, high = translation.versions(message)
        version = draw(st.integers(low, high))
        return b"".join(encode_request(translation.write(message, version), version, 7, "hostile"))
    except (KeyError, ValueError, TidelogError):  # our client sends nothing
        return b""


@st.composite
def any_extension(draw: st.DrawFn) -> bytes:
    """Draw an extension whose body is any msgpack value, or any bytes."""
    carrier = draw(st.sampled_from(CARRIERS))
    version = draw(st.sampled_from([carrier.valid.first, carrier.valid.last]))
    body = draw(st.one_of(trees.map(msgpack.packb), st.lists(trees).map(msgpack.packb), st.binary(max_size=200)))
    return b"".join(encode_request(carrier(body=body), version, 7, "hostile"))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw a request in which bytes are changed or missing. Its size may be that of the bytes that are left."""
    request = bytearray(draw(st.one_of(any_request(), any_extension())))
    for _ in range(draw(st.integers(1, 4))):
        if len(request) > 4:
            at = draw(st.integers(0, len(request) - 1))
            request[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return framed(bytes(request[4:])) if draw(st.booleans()) else bytes(request)


@st.composite
def any_header(draw: st.DrawFn) -> bytes:
    """Draw a request of any API and version, with any bytes as its body."""
    api = draw(st.sampled_from([cls.api for cls in REQUESTS]) | st.integers(990, 1200) | st.integers(-(1 << 15), 32767))
    version = draw(st.integers(-1, 20) | st.integers(-(1 << 15), 32767))
    client_id = draw(st.sampled_from([-1, 0, -2, 32767]))
    header = pack(">hhih", api, version, draw(numbers) % (1 << 31), client_id)
    return framed(header + draw(st.binary(max_size=200)))


requests = st.one_of(st.binary(max_size=200), any_request(), any_extension(), damaged(), any_header())


def throw(live: LiveListeners, sent: Iterable[bytes]) -> None:
    """Send each request over its own connection, end the sending side, and check that only whole frames come back.

    A request that waits therefore delays none of the next, and is abandoned when its connection ends.
    """
    for data in sent:
        with live.client() as client:
            client.send(data)
            client.end_sending()
            received = client.rest()
        position = 0
        while position < len(received):
            assert len(received) - position >= 8, "a response is shorter than its header"
            position += 4 + unpack_from(">i", received, position)[0]
        assert position == len(received), "the last response is incomplete"


def check_growth(live: LiveListeners, examples: int, rounds: int) -> None:
    """Assert that memory does not grow. The first round is a warm-up for caches and for hypothesis."""
    canary = Canary(live)
    before = 0
    for number in range(rounds + 1):

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(sent=st.lists(requests, min_size=1, max_size=8))
        def any_requests(sent: list[bytes]) -> None:
            throw(live, sent)
            canary.check()

        any_requests()
        gc.collect()
        if not number:
            before = resident_bytes()
    assert resident_bytes() - before < MAX_GROWTH_BYTES


@pytest.mark.parametrize("name", corpus())
def test_hostile_frames_of_brokers_do_no_harm_at_the_port_for_clients(live: LiveListeners, name: str) -> None:
    frames = corpus()[name]
    data = b"".join(frames)
    bodies = [carrier(body=frame) for carrier in CARRIERS for frame in frames]
    throw(live, [data, framed(data), *map(framed, frames)])
    throw(live, [b"".join(encode_request(body, body.valid.last, 7, "hostile")) for body in bodies])
    Canary(live).check()


@pytest.mark.timeout(400)  # pure computation, which takes long if other tests use the processors
def test_random_requests_cause_no_failure_and_no_leak(live: LiveListeners) -> None:
    check_growth(live, 75, rounds=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_random_requests_for_long_cause_no_failure_and_no_leak(live: LiveListeners) -> None:
    check_growth(live, 300, rounds=60)


def filled(annotation: Any, text: str) -> Any:
    """Return a value of this type with this text in each field for texts, 0 in each number, and one item in arrays."""
    if isinstance(annotation, type) and issubclass(annotation, Message):
        hints = get_type_hints(annotation)
        return annotation(*(filled(hints[each.name], text) for each in fields(annotation)))  # type: ignore[arg-type]
    if annotation in (str, int, bool, bytes):
        return {str: text, int: 0, bool: False, bytes: b"x"}[annotation]
    if annotation == Buffer:
        return batch_of(b"x")
    arguments = get_args(annotation)
    if get_origin(annotation) is tuple:
        return (filled(arguments[0], text),)
    if get_origin(annotation) is dict:
        return {filled(arguments[0], text): filled(arguments[1], text)}
    return filled(next(each for each in arguments if each is not NoneType), text)


@pytest.mark.parametrize("cls", OF_CLIENTS, ids=lambda cls: cls.__name__)
def test_texts_of_the_maximum_length_are_answered_or_refused(live: LiveListeners, cls: type[Request]) -> None:
    """An error that quotes such a text is longer than a text of a response may be."""
    message = filled(cls, "x" * 32_767)
    sent = []
    for offered in (EXTENSION_APIS, frozenset[int]()):
        try:
            translation = translation_of(message, offered)
        except KeyError:
            continue  # only an extension carries it
        low, high = translation.versions(message)
        for version in range(low, high + 1):
            try:
                written = translation.write(message, version)
                sent.append(b"".join(encode_request(written, version, 7, "hostile")))
            except (ValueError, TidelogError):
                continue  # our client does not send it
    throw(live, sent)
    Canary(live).check()
