"""Malformed extensions at the listener for clients: an error response or a closed connection, and no harm to others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from struct import pack

import msgpack
import pytest

from node.kafka.translation.extensions import EXTENSION_REQUESTS
from tests.node.client_requests import TP
from tests.node.hostile.live_listeners import Canary, LiveListeners, begin_peak, peak_bytes, resident_bytes
from tests.node.hostile.test_requests import NAMES
from tests.node.kafka.live_listener import framed
from tidelog.errors import InvalidRequestError
from tidelog.protocol.codec import MAX_STRING, decode_body, encode_body
from tidelog.protocol.group_messages import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tidelog.protocol.kafka.extensions import FIRST_EXTENSION, ExtensionResponse, carrier_of
from tidelog.protocol.kafka.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages import DescribePartition, DescribeReplicasRequest, Request
from tidelog.protocol.operator_messages import (
    BrokerIdentityRequest,
    DescribeBrokerRequest,
    DescribeBrokerResponse,
    DescribeClientsRequest,
    ExamineReplicaRequest,
)

#: A well-formed request of each extension, so that a test notices an extension that it does not cover.
WELL_FORMED: dict[type[Request], Request] = {
    type(request): request
    for request in (
        DescribeReplicasRequest((DescribePartition(*TP),)),
        ExamineReplicaRequest(*TP),
        DescribeBrokerRequest(),
        DescribeClientsRequest(),
        BrokerIdentityRequest(),
        OffsetCommitRequest("g", (OffsetCommitPartition(*TP, 5),)),
        FindCoordinatorRequest(("g",)),
        DescribeGroupsRequest(("g",)),
        ListGroupsRequest(),
        OffsetFetchRequest("g", (DescribePartition(*TP),)),
    )
}
HUGE_NUMBER = b"\xcf" + b"\xff" * 8

#: Bodies that are no message of any class.
NO_MESSAGE = {
    "empty": b"",
    "reserved byte": b"\xc1" * 100,
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "number": b"\x00",
    "nil": b"\xc0",
    "text": msgpack.packb("x"),
    "map": msgpack.packb({"topic": "t"}),
    "many fields": msgpack.packb([None] * 40),
    "array of four billion": b"\xdd\xff\xff\xff\xff",
    "map of four billion": b"\xdf\xff\xff\xff\xff",
    "text of four billion": b"\xdb\xff\xff\xff\xff",
    "bytes of four billion": b"\xc6\xff\xff\xff\xff",
    "text that is too long": msgpack.packb(["x" * (MAX_STRING + 1)]),
    "text that is not UTF-8": b"\x92\xa2\xff\xfe\x00",
    "lone surrogate": b"\x92\xa3\xed\xa0\x80\x00",
    "number beyond 64 bits": b"\x92" + HUGE_NUMBER + b"\x00",
    "extension type": msgpack.packb([msgpack.ExtType(5, b"x"), 0]),
    "time": msgpack.packb([msgpack.Timestamp(5, 0), 0]),
    "array as key": b"\x81\x90\x00",
    "many small arrays": b"\xdd" + pack(">I", 100_000) + b"\x90" * 100_000,
    **{f"nested {depth}": b"\x91" * depth + b"\xc0" for depth in (200, 500, 900, 1_020, 5_000, 500_000)},
    **{
        f"nested {depth} around a huge number": b"\x91" * depth + HUGE_NUMBER for depth in (200, 500, 900, 1_020, 5_000)
    },
    **{f"map nested {depth}": b"\x81\x00" * depth + HUGE_NUMBER for depth in (500, 900, 5_000)},
}

EACH = pytest.mark.parametrize("cls", EXTENSION_REQUESTS, ids=lambda cls: cls.__name__)


def header(api: int, version: int) -> bytes:
    return pack(">hhih", api, version, 7, -1)


def carried(body: bytes) -> bytes:
    """Return the body of an extension's request as it is sent."""
    return pack(">i", len(body)) + body


def answer(live: LiveListeners, cls: type[Request], body: bytes) -> ExtensionResponse:
    """Return the response to an extension with this body. Check that the connection and other clients still work."""
    carrier = carrier_of(cls)
    with live.client() as client:
        found = client.ask(carrier(body=body), carrier.valid.last)
        assert isinstance(found, ExtensionResponse)
        offered = client.ask(ApiVersionsRequest(), 2)
        assert isinstance(offered, ApiVersionsResponse) and offered.error_code == 0
    return found


@EACH
def test_well_formed_extension_is_answered(live: LiveListeners, cls: type[Request]) -> None:
    found = answer(live, cls, encode_body(WELL_FORMED[cls]))
    assert found.error_code == 0 and found.body
    Canary(live).check()


@pytest.mark.parametrize("version", [0, 1])
def test_broker_reports_its_limits_from_version_1_on(live: LiveListeners, version: int) -> None:
    carrier = carrier_of(DescribeBrokerRequest)
    with live.client() as client:
        found = client.ask(carrier(body=encode_body(DescribeBrokerRequest(), version)), version)
    assert isinstance(found, ExtensionResponse)
    report = decode_body(found.body, DescribeBrokerResponse, version)
    memory = (report.memory_bytes, report.free_memory_bytes, report.total_memory_bytes)
    assert report.max_partitions == (1000 if version else -1)
    assert min(memory) > 1 << 20 if version else memory == (-1, -1, -1)
    assert report.max_connections == (500 if version else -1)
    assert report.connections >= 1 if version else report.connections == -1


@pytest.mark.parametrize(("name", "version"), [("tidelog", 3), ("librdkafka", 3), ("Tidelog", 3), ("", 2), ("", 0)])
def test_extensions_are_listed_for_clients_of_tidelog_only(live: LiveListeners, name: str, version: int) -> None:
    with live.client() as client:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1" if name else "")
        offered = client.ask(request, version)
    assert isinstance(offered, ApiVersionsResponse) and offered.error_code == 0
    listed = {each.api_key for each in offered.api_keys if each.api_key >= FIRST_EXTENSION}
    assert listed == ({carrier_of(cls).api for cls in EXTENSION_REQUESTS} if name == "tidelog" else set())


def test_extensions_are_not_listed_with_the_refusal_of_a_version(live: LiveListeners) -> None:
    with live.client() as client:
        client.send(framed(header(18, 99) + b"\0"))
        refused = client.frame()
    numbers = [int.from_bytes(refused[at : at + 2], "big") for at in range(10, len(refused), 6)]
    assert refused[4:6] == pack(">h", 35) and max(numbers) < FIRST_EXTENSION


@EACH
@pytest.mark.parametrize("name", NO_MESSAGE)
def test_body_that_is_no_message_is_refused(live: LiveListeners, cls: type[Request], name: str) -> None:
    canary = Canary(live)
    refused = answer(live, cls, NO_MESSAGE[name])
    assert (refused.error_code, refused.body) == (InvalidRequestError.code, b"")
    assert refused.error_message
    canary.check()


@EACH
def test_body_of_another_shape_is_refused(live: LiveListeners, cls: type[Request]) -> None:
    fields = msgpack.unpackb(encode_body(WELL_FORMED[cls]))
    wrong = [
        msgpack.packb([*fields, None]),
        msgpack.packb(fields) + b"\x00",
        msgpack.packb(fields) * 2,
        msgpack.packb([*fields, *fields, 0]),
        *(msgpack.packb([*fields[:at], 1.5, *fields[at + 1 :]]) for at in range(len(fields))),
        *(msgpack.packb([*fields[:at], {"x": 1}, *fields[at + 1 :]]) for at in range(len(fields))),
        *(msgpack.packb([*fields[:at], [[[]]], *fields[at + 1 :]]) for at in range(len(fields))),
    ]
    if fields:
        wrong += [msgpack.packb(fields[:-1]), msgpack.packb(fields)[:-1], msgpack.packb([[field] for field in fields])]
    for body in wrong:
        refused = answer(live, cls, body)
        assert (refused.error_code, refused.body) == (InvalidRequestError.code, b""), body
    Canary(live).check()


BAD_FRAMES = {
    "unknown number": header(1_500, 0) + carried(b"\x90"),
    "number of a request between brokers": header(1_003, 0) + carried(b"\x90"),
    "largest number": header(32_767, 0) + carried(b"\x90"),
    "unknown version": header(1_001, 1) + carried(b"\x90"),
    "negative version": header(1_001, -1) + carried(b"\x90"),
    "no body": header(1_001, 0),
    "null body": header(1_001, 0) + pack(">i", -1),
    "negative body": header(1_001, 0) + pack(">i", -(1 << 31)) + b"\x90",
    "body beyond the end": header(1_001, 0) + pack(">i", 2) + b"\x90",
    "body of 2 GiB": header(1_001, 0) + pack(">i", (1 << 31) - 1) + b"\x90",
    "bytes after the body": header(1_001, 0) + carried(b"\x90") + b"\x00",
    "tagged fields": header(1_001, 0) + b"\x00" + carried(b"\x90"),
    "more than 1 MiB": header(1_001, 0) + carried(bytes(1 << 20)),
    "60 MB of small arrays": header(1_001, 0) + carried(b"\xdd" + pack(">I", 60_000_000) + b"\x90" * 60_000_000),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_frame_that_is_no_extension_closes_its_connection_only(live: LiveListeners, name: str) -> None:
    canary, before = Canary(live), resident_bytes()
    begin_peak()
    with live.client() as other:
        with live.client() as client:
            client.send(framed(BAD_FRAMES[name]))
            assert client.rest() == b""
        assert other.ask(ApiVersionsRequest(), 2)
    assert peak_bytes() - before < 3 * len(BAD_FRAMES[name]) + (16 << 20)
    canary.check()


@pytest.mark.parametrize("filler", [b"\x80", b"\x90", b"\xc0", b"\xa0"], ids=["maps", "arrays", "nils", "texts"])
def test_body_of_many_small_values_takes_bounded_memory(live: LiveListeners, filler: bytes) -> None:
    canary = Canary(live)
    canary.check()
    count = (1 << 20) - 100
    before = resident_bytes()
    begin_peak()
    for _ in range(3):
        refused = answer(live, ExamineReplicaRequest, b"\xdd" + pack(">I", count) + filler * count)
        assert refused.error_code == InvalidRequestError.code
    assert peak_bytes() - before < 100 << 20
    canary.check()


EXTREMES = (-(1 << 63), -2, -1, 1, 1 << 31, (1 << 63) - 1)
LONG = "x" * MAX_STRING
TEXTS = [*NAMES, LONG, "é" * (MAX_STRING // 2), "\x1b[2J\n", "g"]


def extremes() -> Sequence[Request]:
    """Return requests that are well-formed, with texts and numbers that no client of Tidelog sends."""
    found: list[Request] = [
        DescribeClientsRequest(number, (text,)) for number, text in zip(EXTREMES, TEXTS, strict=False)
    ]
    found += [ExamineReplicaRequest(text, number) for text in TEXTS for number in (0, *EXTREMES)]
    found += [DescribeReplicasRequest((DescribePartition(text, 0), DescribePartition(text, 1 << 40))) for text in TEXTS]
    found += [
        OffsetCommitRequest(text, (OffsetCommitPartition(other, number, number),), number, other, text)
        for text, other in pairwise(TEXTS)
        for number in EXTREMES
    ]
    found += [OffsetCommitRequest("g", (OffsetCommitPartition(*TP, 1),), committer_id=LONG, sequence=-5)]
    found += [OffsetCommitRequest("g", (OffsetCommitPartition(*TP, 1),), committer_id="c", coordinator_epoch=1 << 62)]
    found += [FindCoordinatorRequest((text,)) for text in TEXTS]
    found += [FindCoordinatorRequest(("g",), number) for number in EXTREMES]
    found += [FindCoordinatorRequest(("g",) * 10_000), DescribeGroupsRequest(("g",) * 10_000)]
    found += [DescribeGroupsRequest((text,)) for text in TEXTS]
    found += [ListGroupsRequest((text,)) for text in TEXTS]
    return found


def test_extreme_values_get_responses_and_reach_no_file(live: LiveListeners) -> None:
    def directories() -> set[Path]:
        return {path for path in live.directory.rglob("*") if path.is_dir()}

    before = directories()
    canary = Canary(live)
    with live.client() as client:
        for request in extremes():
            carrier = carrier_of(type(request))
            found = client.ask(carrier(body=encode_body(request, carrier.valid.last)), carrier.valid.last)
            assert isinstance(found, ExtensionResponse)
            assert bool(found.body) == (found.error_code == 0)
            canary.check()
    assert directories() == before
