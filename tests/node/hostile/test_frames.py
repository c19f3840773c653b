"""Random frames at the listener for brokers, which answers or ignores them, and other clients are not affected."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.node.client_requests import batch_of
from tests.node.hostile.live_listeners import (
    TOPIC_ID,
    Canary,
    LiveListeners,
    begin_peak,
    header_of,
    peak_bytes,
    resident_bytes,
)
from tests.tidelog.any_message import ANY, REQUESTS, values_of
from tidelog.errors import ProtocolError, UnknownServerError
from tidelog.model import Buffer
from tidelog.protocol.codec import RequestHeader, encode
from tidelog.protocol.messages import Request

#: One case per line: a name, then each frame in hexadecimal. Findings of the fuzzer are added here.
CORPUS = Path(__file__).parent / "corpus.txt"
#: The limit of memory growth over all frames.
MAX_GROWTH_BYTES = 64 << 20


def corpus() -> dict[str, list[bytes]]:
    lines = [line.split() for line in CORPUS.read_text().splitlines() if line and not line.startswith("#")]
    return {name: [bytes.fromhex(frame.strip("-")) for frame in frames] for name, *frames in lines}


numbers = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-2, -1, 0, 1, 2**31 - 1, 2**63 - 1])
headers = st.builds(
    RequestHeader,
    st.sampled_from([cls.api for cls in REQUESTS]) | numbers,
    st.sampled_from([0, 0, 0, 1, -1]) | numbers,
    numbers,
    st.text(max_size=10),
    st.sampled_from(["", "", "c", "d"]),
    st.sampled_from([-1, -1, 0]) | numbers,
    st.sampled_from([-1, 1]) | numbers,
    st.sampled_from([-1, -1, 101, 100]) | numbers,
)


#: Field values that mean something to this broker, so that requests pass the listener's checks.
AIMED = {
    int: st.sampled_from([-2, -1, 0, 0, 0, 1, 1, 2, 100, 101, 2**31 - 1, 2**31, 2**63 - 1]) | numbers,
    bool: st.booleans(),
    str: st.sampled_from(["t", "t", "t", "u", "..", ".", "", "a/b", "\0", "t" * 249, "t" * 250, TOPIC_ID, "c"])
    | st.text(max_size=10),
    bytes: st.sampled_from([b"", batch_of(b"x")]) | st.binary(max_size=100),
    Buffer: st.sampled_from([batch_of(b"x"), batch_of(b"x", producer_id=5, sequence=0), batch_of(b"x") * 2, b""])
    | st.binary(max_size=100),
}


@st.composite
def any_request(draw: st.DrawFn) -> list[bytes]:
    """Draw a message that the codec can encode, with random fields, under a matching header."""
    cls: type[Request] = draw(st.sampled_from(REQUESTS))
    message = draw(values_of(cls, draw(st.sampled_from([ANY, AIMED, AIMED]))))
    header = header_of(message)
    if draw(st.booleans()):
        header = draw(headers)._replace(api_key=cls.api, api_version=0)
    try:
        return [bytes(frame) for frame in encode(header, message)]
    except ProtocolError:
        return [b""]


@st.composite
def damaged(draw: st.DrawFn) -> list[bytes]:
    """Draw a request in which bytes are changed or missing, or frames are lost or repeated."""
    frames = [bytearray(frame) for frame in draw(any_request())]
    for _ in range(draw(st.integers(1, 4))):
        frame = frames[draw(st.integers(0, len(frames) - 1))]
        if frame:
            at = draw(st.integers(0, len(frame) - 1))
            frame[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    if draw(st.booleans()):
        frames.insert(draw(st.integers(0, len(frames))), frames[draw(st.integers(0, len(frames) - 1))])
    if draw(st.booleans()) and len(frames) > 1:
        del frames[draw(st.integers(0, len(frames) - 1))]
    return [bytes(frame) for frame in frames]


trees = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=5), st.binary()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=10), st.dictionaries(st.text(max_size=3) | st.integers(0, 5), inner, max_size=3)
    ),
    max_leaves=30,
)


@st.composite
def any_body(draw: st.DrawFn) -> list[bytes]:
    """Draw a valid header with any msgpack value as the body."""
    envelope = [[0, *draw(headers)], draw(trees)]
    return [msgpack.packb(envelope), *draw(st.lists(st.binary(max_size=100), max_size=3))]


messages = st.one_of(st.lists(st.binary(max_size=200), min_size=1, max_size=5), any_request(), damaged(), any_body())


def throw(live: LiveListeners, conversations: Sequence[Sequence[bytes]]) -> None:
    """Send all frames over one connection. Assert that no answer is an internal error of the broker."""
    with live.caller() as caller:
        for frames in conversations:
            caller.send(frames)
        assert UnknownServerError.code not in caller.answers_until_handshake()


def check_growth(live: LiveListeners, examples: int, rounds: int) -> None:
    """Assert that memory does not grow. The first round is a warm-up for caches and for hypothesis."""
    canary = Canary(live)
    before = 0
    for number in range(rounds + 1):

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(conversations=st.lists(messages, min_size=1, max_size=8))
        def any_frames(conversations: list[list[bytes]]) -> None:
            throw(live, conversations)
            canary.check()

        any_frames()
        gc.collect()
        if not number:
            before = resident_bytes()
    assert resident_bytes() - before < MAX_GROWTH_BYTES


@pytest.mark.parametrize("name", corpus())
def test_known_hostile_frames_do_no_harm(live: LiveListeners, name: str) -> None:
    throw(live, [corpus()[name]] * 3)
    Canary(live).check()


@pytest.mark.parametrize("filler", [b"\x80", b"\x90", b"\xc0", b"\xc4\x00"], ids=["maps", "arrays", "nils", "bytes"])
def test_envelope_of_many_small_values_delays_no_other_client(live: LiveListeners, filler: bytes) -> None:
    """Decoding such an envelope would take a multiple of its 60 MB and delay other clients."""
    canary = Canary(live)
    canary.check()
    envelope = b"\xdd" + (60_000_000 // len(filler)).to_bytes(4) + filler * (60_000_000 // len(filler))
    before = resident_bytes()
    begin_peak()
    with live.caller() as caller:
        caller.send([envelope])
        caller.answers_until_handshake()
    assert peak_bytes() - before < 3 * len(envelope), (
        "the broker took more memory than the envelope at both ends of the connection"
    )
    canary.check()


@pytest.mark.timeout(400)  # pure computation, which takes long if other tests use the processors
def test_random_frames_cause_no_failure_and_no_leak(live: LiveListeners) -> None:
    check_growth(live, 75, rounds=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_random_frames_for_long_cause_no_failure_and_no_leak(live: LiveListeners) -> None:
    check_growth(live, 300, rounds=60)
