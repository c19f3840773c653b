"""Test that every message is decoded as it was encoded, and that other bytes are rejected."""

from __future__ import annotations

from functools import cache

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tidelog.any_message import REQUESTS, values_of
from tidelog.errors import ProtocolError
from tidelog.protocol.codec import (
    MAX_STRING,
    Body,
    RequestHeader,
    ResponseHeader,
    decode_request,
    decode_response,
    encode,
)
from tidelog.protocol.messages import (
    FetchPartitionResponse,
    FetchResponse,
    Message,
    MetadataRequest,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    RecordError,
)

HEADER = RequestHeader(3, 0, 7, "cli", "", 1000, -1, 5)
ALL = sorted({*REQUESTS, *(request.response for request in REQUESTS)}, key=lambda cls: cls.__name__)


#: The values of each message, which are built once, because building takes longer than drawing.
VALUES_OF = cache(values_of)
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.binary(max_size=3)
TREES = st.recursive(
    SCALARS,
    lambda tree: (
        st.lists(tree, max_size=4) | st.dictionaries(st.integers(0, 3) | st.text(max_size=3), tree, max_size=2)
    ),
)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
@settings(max_examples=8)
@given(data=st.data())
def test_every_message_survives_the_wire(cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(VALUES_OF(cls))
    header, body = decode_request(encode(HEADER, message))
    assert (header, body.read(cls)) == (HEADER, message)


def test_string_is_sent_up_to_the_limit_and_not_beyond() -> None:
    longest = MetadataRequest(("é" * (MAX_STRING // 2) + "e", "t"))
    _, body = decode_request(encode(HEADER, longest))
    assert body.read(MetadataRequest) == longest
    with pytest.raises(ProtocolError, match="more than 32767 bytes"):
        encode(HEADER, MetadataRequest(("é" * (MAX_STRING // 2 + 1),)))
    many = MetadataRequest(("e" * 1000,) * 100)
    assert decode_request(encode(HEADER, many))[1].read(MetadataRequest) == many


@pytest.mark.parametrize("unsendable", [ResponseHeader(1, 1 << 64, None), ResponseHeader(1, 0, "\udcff")])
def test_message_beyond_the_limits_is_not_sent(unsendable: ResponseHeader) -> None:
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        encode(unsendable)


@settings(max_examples=100)
@given(value=TREES)
def test_wrong_field_value_raises_protocol_error(value: object) -> None:
    for cls in ALL:
        try:
            decoded = decode_request([msgpack.packb([[0, *HEADER], value])])[1].read(cls)
        except ProtocolError:
            continue
        assert msgpack.unpackb(encode(HEADER, decoded)[0], strict_map_key=False)[1] == value, cls


@settings(max_examples=500)
@given(junk=st.binary(max_size=60))
def test_random_bytes_raise_protocol_error(junk: bytes) -> None:
    for decode in (decode_request, decode_response):
        with pytest.raises(ProtocolError):
            decode([junk])


def test_envelope_is_the_array_of_header_and_body_and_records_are_frames() -> None:
    """Compare with the golden bytes of docs/PROTOCOL.md."""
    request = ProduceRequest(-1, 30_000, (ProducePartition("t", 0, b"AB"), ProducePartition("t", 3, b"C")))
    envelope, first, second = encode(HEADER._replace(api_key=0), request)
    assert bytes(envelope).hex(" ") == (
        "92 99 00 00 00 07 a3 63 6c 69 a0 cd 03 e8 ff 05 93 ff cd 75 30 92 93 a1 74 00 00 93 a1 74 03 01"
    )
    assert (first, second) == (b"AB", b"C")


def test_headers_have_a_fixed_shape() -> None:
    """Compare with the golden bytes of docs/PROTOCOL.md."""
    [envelope] = encode(HEADER, MetadataRequest(), 0)
    assert bytes(envelope).hex(" ") == "92 99 00 03 00 07 a3 63 6c 69 a0 cd 03 e8 ff 05 91 c0"
    response = ResponseHeader(7, 42, "no")
    [refusal] = encode(response)
    assert bytes(refusal).hex(" ") == "91 94 00 07 2a a2 6e 6f"
    assert decode_response([refusal])[0] == response


REFUSED = ProduceResponse(
    (ProducePartitionResponse("t", 0, 87, error_message="no", record_errors=(RecordError(3, "bad"),)),)
)


def test_a_field_of_version_1_is_an_array_more_at_the_end() -> None:
    """Compare with golden bytes: an old peer reads version 0, and a new one version 1."""
    answer = ResponseHeader(7, 0, None)
    [old], [new] = encode(answer, REFUSED, 0), encode(answer, REFUSED, 1)
    assert bytes(old).hex(" ") == "92 94 00 07 00 c0 91 91 97 a1 74 00 57 ff ff ff a2 6e 6f"
    assert bytes(new).hex(" ") == "92 94 00 07 00 c0 91 91 98 a1 74 00 57 ff ff ff a2 6e 6f 91 92 03 a3 62 61 64"
    assert decode_response([new])[1].read(ProduceResponse, 1) == REFUSED


def test_a_message_of_version_0_is_read_without_the_fields_of_later_ones() -> None:
    [old] = encode(ResponseHeader(7, 0, None), REFUSED, 0)
    read = decode_response([old])[1].read(ProduceResponse, 0)
    assert read == ProduceResponse((ProducePartitionResponse("t", 0, 87, error_message="no"),))
    with pytest.raises(ProtocolError, match="does not have its 8 fields"):
        decode_response([old])[1].read(ProduceResponse, 1)


@pytest.mark.parametrize("extra", [[b"x"], [b"x", b"y"]])
def test_trailing_frames_are_refused(extra: list[bytes]) -> None:
    with pytest.raises(ProtocolError, match="no field refers to"):
        decode_request([*encode(HEADER, MetadataRequest()), *extra])[1].read(MetadataRequest)


def test_one_frame_cannot_serve_two_partitions() -> None:
    body = [[["t", 0, 0, 1, 1, 0, 0], ["t", 1, 0, 1, 1, 0, 0]], 0]
    with pytest.raises(ProtocolError, match="next frame"):
        Body(body, [b"x"]).read(FetchResponse)


@pytest.mark.parametrize("indices", [(0, 0), (1, 0), (0, 2), (-1, 0)])
def test_records_refer_to_the_frames_in_their_order(indices: tuple[int, int]) -> None:
    body = [[["t", partition, 0, 1, 1, 0, index] for partition, index in enumerate(indices)], 0]
    with pytest.raises(ProtocolError, match="next frame"):
        Body(body, [b"x", b"y"]).read(FetchResponse)


def test_an_empty_answer_needs_no_frame() -> None:
    response = FetchResponse((FetchPartitionResponse("t", 0, 0),))
    assert len(encode(ResponseHeader(7, 0, None), response)) == 1
