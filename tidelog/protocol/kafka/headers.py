"""Encode and decode the headers of requests and responses, and whole frames.

A frame is an int32 with the size of the rest, a header and a body.

    request header      api key int16, api version int16, correlation id int32, client id as nullable string,
                        in flexible versions of the request also tagged fields
    response header     correlation id int32, in flexible versions also tagged fields

The client id has an int16 length even in flexible versions. The header of an ApiVersions response never has tagged
fields, because the client does not know yet which versions the broker supports.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, cast

from tidelog.errors import ProtocolError
from tidelog.model import Buffer
from tidelog.protocol.kafka.apis import API_BY_KEY
from tidelog.protocol.kafka.codec import Part, encode_buffers, is_flexible
from tidelog.protocol.kafka.primitives import MAX_STRING_BYTES, skip_tagged_fields
from tidelog.protocol.kafka.schema import Message, Request, Response

#: The size of the number before each frame.
SIZE_BYTES = 4

_API_VERSIONS = 18
_FIXED = struct.Struct(">hhih")
_MAX_FRAME_BYTES = 2**31 - 1
_INT32 = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """The header of a request. `client_id` is what the client calls itself."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Return the header of a request and the position of the body; ProtocolError if the frame has no header.

    The header of an API or of a version that this code does not know is read as far as all versions have it.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame, 0)
    except struct.error:
        raise ProtocolError(f"a request of {len(frame)} bytes, which is shorter than its header") from None
    position = _FIXED.size
    client_id = None
    if length != -1:
        end = position + length
        if not position <= end <= len(frame):
            raise ProtocolError(f"a client id of {length} bytes in a request of {len(frame)} bytes")
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"the client id is not UTF-8: {error}") from None
        position = end
    api = API_BY_KEY.get(api_key)
    if api is not None and api.flexible_from is not None and api.flexible_from <= api_version <= api.valid.last:
        position = _after_tags(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def decode_response_header(frame: Buffer, request: type[Request], version: int) -> tuple[int, int]:
    """Return a response's correlation id and the position of its body; ProtocolError if the frame has no header."""
    if len(frame) < _INT32.size:
        raise ProtocolError(f"a response of {len(frame)} bytes, which is shorter than its header")
    (correlation_id,) = _INT32.unpack_from(frame, 0)
    return correlation_id, _after_tags(frame, 4) if _has_tags(request.response, version) else 4


def encode_request(request: Request, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """Return the frame of a request with its size before it, in buffers. Record bytes are uncopied."""
    name = b"" if client_id is None else client_id.encode()
    if len(name) > MAX_STRING_BYTES:
        raise ProtocolError(f"a client id of {len(name)} bytes, but at most {MAX_STRING_BYTES} are allowed")
    length = -1 if client_id is None else len(name)
    tags = b"\0" if is_flexible(type(request), version) else b""
    header = _FIXED.pack(request.api, version, correlation_id, length) + name + tags
    # A request has no stored bytes.
    return cast(list[Buffer], _frame(header, encode_buffers(request, version)))


def encode_response(response: Response, version: int, correlation_id: int) -> list[Part]:
    """Return the frame of a response with its size before it, in parts. Record bytes are uncopied.

    Messages without records are one buffer.
    """
    tags = b"\0" if _has_tags(type(response), version) else b""
    return _frame(_INT32.pack(correlation_id) + tags, encode_buffers(response, version))


def _frame(header: bytes, body: list[Part]) -> list[Part]:
    size = len(header) + sum(map(len, body))
    if size > _MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {size} bytes cannot be sent")
    body[0] = b"".join((_INT32.pack(size), header, cast(bytes, body[0])))  # no message begins with records
    return body


def _has_tags(response: type[Message], version: int) -> bool:
    return response.api != _API_VERSIONS and is_flexible(response, version)


def _after_tags(frame: Buffer, position: int) -> int:
    try:
        return skip_tagged_fields(frame, position)
    except IndexError:
        raise ProtocolError("the header ends inside its tagged fields") from None
