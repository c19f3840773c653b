"""Kafka's messages are decoded from, and encoded to, the bytes that kafka-python and kio write (golden/README.md)."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.tidelog.kafka.any_kafka_message import MESSAGES, versions
from tidelog.protocol.kafka.codec import decode, encode
from tidelog.protocol.kafka.headers import (
    SIZE_BYTES,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from tidelog.protocol.kafka.schema import (
    Array,
    Bytes,
    Fixed,
    Message,
    Nested,
    Records,
    Request,
    Response,
    Struct,
    WireType,
    fields_of,
)

GOLDEN = Path(__file__).parent / "golden" / "golden.jsonl"
FRAMES = [json.loads(line) for line in GOLDEN.with_name("frames.jsonl").read_text().splitlines()]
BY_NAME = {cls.__name__: cls for cls in MESSAGES}


@cache
def golden() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in GOLDEN.read_text().splitlines():
        each = json.loads(line)
        found[each["message"]].append(each)
    return found


def struct_of(cls: type[Struct], version: int, value: dict[str, Any]) -> Any:
    """Return the structure with these values. They are those of all fields of the version, but tagged ones may lack."""
    present = {each.name: each for each in fields_of(cls) if version in each.versions}
    assert value.keys() <= present.keys()
    assert [name for name in present.keys() - value.keys() if present[name].tag is None] == []
    return cls(**{name: value_of(present[name].type, version, each) for name, each in value.items()})


def value_of(kind: WireType, version: int, value: Any) -> Any:
    match kind:
        case _ if value is None:
            return None
        case Nested(cls):
            return struct_of(cls, version, value)
        case Array(item):
            return tuple(value_of(item, version, each) for each in value)
        case Bytes() | Records() | Fixed("16s"):
            return bytes.fromhex(value)
    return value


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_messages_have_the_bytes_of_other_encoders(cls: type[Message]) -> None:
    judged = set()
    for each in golden()[cls.__name__]:
        body = bytes.fromhex(each["bytes"])
        for version in each["versions"]:
            expected = struct_of(cls, version, each["value"])
            assert decode(cls, version, body) == expected
            assert encode(expected, version) == body
            judged.add(version)
    assert judged == set(versions(cls))


@pytest.mark.parametrize("golden_frame", FRAMES, ids=lambda each: f"{each['message']} {each['version']}")
def test_frames_have_the_bytes_of_another_encoder(golden_frame: dict[str, Any]) -> None:
    cls, version = BY_NAME[golden_frame["message"]], golden_frame["version"]
    message = struct_of(cls, version, golden_frame["value"])
    frame = bytes.fromhex(golden_frame["bytes"])
    received = frame[SIZE_BYTES:]
    assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(received)
    if isinstance(message, Request):
        assert b"".join(encode_request(message, version, 77, golden_frame["client_id"])) == frame
        header, position = decode_request_header(received)
        assert header == RequestHeader(message.api, version, 77, golden_frame["client_id"])
    else:
        assert isinstance(message, Response)
        assert b"".join(encode_response(message, version, 77)) == frame
        request: Any = BY_NAME[cls.__name__.replace("Response", "Request")]
        correlation_id, position = decode_response_header(received, request, version)
        assert correlation_id == 77
    assert decode(cls, version, received[position:]) == message
