"""Headers of requests and responses in all their versions, and whole frames."""

from __future__ import annotations

import pytest

from tidelog.errors import ProtocolError
from tidelog.protocol.kafka.apis import API_BY_KEY, APIS, request_class
from tidelog.protocol.kafka.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from tidelog.protocol.kafka.messages.group_membership import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.kafka.messages.metadata import ApiVersionsRequest, ApiVersionsResponse

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("version", [3, 4], ids=["fixed", "flexible"])
@pytest.mark.parametrize("client_id", [None, "", "kcat ä"])
def test_request_frames_begin_with_their_header(version: int, client_id: str | None) -> None:
    (frame,) = encode_request(HEARTBEAT, version, 77, client_id)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    for received in (bytes(frame[4:]), bytearray(frame[4:]), memoryview(frame)[4:]):
        header, body = decode_request_header(received)
        assert header == RequestHeader(12, version, 77, client_id)
        assert len(received) - body == (12 if version == 3 else 10)


def test_client_ids_have_a_length_of_two_bytes_in_flexible_headers() -> None:
    frame = bytes.fromhex("0012 0003 00000001 0004") + b"kcat" + b"\0" + bytes.fromhex("02 61 02 62 00")
    assert decode_request_header(frame) == (RequestHeader(18, 3, 1, "kcat"), 15)
    with_tag = bytes.fromhex("0012 0003 00000001 ffff 01 07 02 abcd")
    assert decode_request_header(with_tag) == (RequestHeader(18, 3, 1, None), len(with_tag))


def test_headers_of_unknown_apis_and_versions_are_read() -> None:
    frame = bytes.fromhex("7fff 0009 00000005 0001 78")
    assert decode_request_header(frame) == (RequestHeader(32767, 9, 5, "x"), len(frame))
    assert decode_request_header(bytes.fromhex("0012 7fff 00000005 0001 78 00"))[0].api_version == 32767
    assert decode_request_header(bytes.fromhex("0012 ffff 00000005 0001 78"))[0].api_version == -1


def test_every_cut_of_a_header_is_a_protocol_error() -> None:
    frame = bytes.fromhex("0012 0003 00000001 0004") + b"kcat" + b"\x01\x07\x02ab"
    assert decode_request_header(frame)[1] == len(frame)
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode_request_header(frame[:size])


@pytest.mark.parametrize("length", ["fffe", "8000", "7fff", "0005"])
def test_wrong_lengths_of_a_client_id_are_a_protocol_error(length: str) -> None:
    with pytest.raises(ProtocolError, match=r"a client id of -?\d+ bytes in a request of 14 bytes"):
        decode_request_header(bytes.fromhex(f"000c 0003 00000001 {length} 61626364"))


def test_client_ids_that_are_not_utf8_are_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match=r"the client id is not UTF-8"):
        decode_request_header(bytes.fromhex("000c 0003 00000001 0001 ff"))


def test_flexible_responses_have_tagged_fields_in_their_header() -> None:
    assert encode_response(HeartbeatResponse(error_code=0), 3, 9) == [bytes.fromhex("0000000a 00000009 00000000 0000")]
    flexible = bytes.fromhex("0000000c 00000009 00 00000000 0000 00")
    assert encode_response(HeartbeatResponse(error_code=0), 4, 9) == [flexible]
    assert decode_response_header(flexible[4:], HeartbeatRequest, 4) == (9, 5)
    for size in range(5):
        with pytest.raises(ProtocolError):
            decode_response_header(flexible[4 : 4 + size], HeartbeatRequest, 4)


def test_headers_of_api_versions_responses_never_have_tagged_fields() -> None:
    (frame,) = encode_response(ApiVersionsResponse(error_code=0, api_keys=()), 3, 9)
    assert frame == bytes.fromhex("0000000c 00000009 0000 01 00000000 00")
    assert decode_response_header(frame[4:], ApiVersionsRequest, 3) == (9, 4)
    assert encode_response(ApiVersionsResponse(error_code=35, api_keys=()), 0, 9) == [
        bytes.fromhex("0000000a 00000009 0023 00000000")
    ]


def test_client_ids_that_are_too_long_are_refused() -> None:
    with pytest.raises(ProtocolError, match=r"a client id of 32768 bytes"):
        encode_request(HEARTBEAT, 3, 1, "x" * 32768)


def test_every_api_has_classes_that_agree_with_the_table() -> None:
    for api in APIS:
        request = request_class(api)
        for cls in (request, request.response):
            assert (cls.api, cls.valid, cls.flexible_from) == (api.key, api.valid, api.flexible_from)
        assert API_BY_KEY[api.key] is api
