"""Messages to frames and back (docs/PROTOCOL.md).

A message travels as a list of frames: a header, a body, then the record bytes that the body refers to.
Header and body are msgpack. A body is the array of its dataclass's fields in their order; a nested message
is a nested array; a `Buffer` field holds the index of the frame with its bytes, and every such frame is
referred to exactly once, in order. Coders are compiled once for each class from its annotations.

Whatever a peer sends, decoding either gives a whole, well-typed message or raises ProtocolError.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgpack

from tidelog.errors import ProtocolError
from tidelog.messages import Message
from tidelog.model import Buffer

#: No frame may be larger; ZeroMQ refuses it before allocating.
MAX_FRAME_BYTES = 64 * 1024 * 1024
#: No message has more frames than this: header, body, and one for each partition.
MAX_FRAMES = 100_000
MAX_STRING = 32767

_FRAMING = 0
_INT64 = 1 << 63

M = TypeVar("M", bound=Message)


class RequestHeader(NamedTuple):
    """Frame 0 of a request.

    deadline_ms       on the addressee's own monotonic clock, learned in the handshake; −1 in the handshake itself
    sender_epoch      the sending broker's epoch (czxid of its registration), −1 from clients
    addressee_epoch   the epoch of the broker that this is meant for, −1 for whichever it has
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    cluster_id: str
    deadline_ms: int
    sender_epoch: int
    addressee_epoch: int


class ResponseHeader(NamedTuple):
    """Frame 0 of a response. With an `error_code` ≠ 0 no body follows."""

    correlation_id: int
    error_code: int
    error_message: str | None


# The types of all fields at once, the framing's first: one comparison for each header.
_Types = frozenset[tuple[type, ...]]
_REQUEST_TYPES: _Types = frozenset({(int, int, int, int, str, str, int, int, int)})
_RESPONSE_TYPES: _Types = frozenset({(int, int, int, str), (int, int, int, type(None))})


def encode_header(header: RequestHeader | ResponseHeader) -> bytes:
    """Frame 0."""
    packed: bytes = msgpack.packb((_FRAMING, *header))
    return packed


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Frame 0 of a request; ProtocolError if it is not one."""
    header = RequestHeader._make(_header_fields(frame, _REQUEST_TYPES))
    if len(header.client_id) > MAX_STRING or len(header.cluster_id) > MAX_STRING:
        raise ProtocolError("a header field is too long")
    return header


def decode_response_header(frame: Buffer) -> ResponseHeader:
    """Frame 0 of a response; ProtocolError if it is not one."""
    header = ResponseHeader._make(_header_fields(frame, _RESPONSE_TYPES))
    if header.error_message and len(header.error_message) > MAX_STRING:
        raise ProtocolError("a header field is too long")
    return header


def _header_fields(frame: Buffer, allowed: _Types) -> list[Any]:
    value = _unpack(frame)
    if type(value) is not list or tuple(map(type, value)) not in allowed or value[0] != _FRAMING:
        raise ProtocolError("not a header of this protocol")
    del value[0]
    return value


def encode_body(message: Message) -> list[Buffer]:
    """The body frame and the frames of record bytes after it, uncopied."""
    attachments: list[Buffer] = []
    kind: Any = type(message)
    body = _coder(kind).encode(message, attachments)
    return [msgpack.packb(body), *attachments]


def decode_body(cls: type[M], frames: Sequence[Buffer]) -> M:
    """The message in `frames` (body first); ProtocolError if they are not one `cls`, whole and nothing more."""
    if not frames:
        raise ProtocolError(f"{cls.__name__}: the body is missing")
    cursor = _Attachments(frames)
    kind: Any = cls
    message: M = _coder(kind).decode(_unpack(frames[0]), cursor)
    if cursor.next != len(frames):
        raise ProtocolError(f"{cls.__name__}: {len(frames) - cursor.next} frames that nothing refers to")
    return message


def _unpack(frame: Buffer) -> Any:
    try:
        return msgpack.unpackb(frame, strict_map_key=False)
    except (ValueError, TypeError, RecursionError) as error:  # msgpack's own errors derive from ValueError
        raise ProtocolError(f"not msgpack: {type(error).__name__}") from None


class _Attachments:
    """The record frames, handed out in order."""

    __slots__ = ("frames", "next")

    def __init__(self, frames: Sequence[Buffer]) -> None:
        self.frames = frames
        self.next = 1

    def take(self, index: Any) -> Buffer:
        if type(index) is not int or index != self.next - 1 or self.next >= len(self.frames):
            raise ProtocolError("a records field does not refer to the next frame")
        self.next += 1
        return self.frames[index + 1]


@dataclass(frozen=True, slots=True)
class _Coder:
    """How one type travels. `plain` says that encoding changes nothing."""

    encode: Callable[[Any, list[Buffer]], Any]
    decode: Callable[[Any, _Attachments], Any]
    plain: bool = False


@cache
def _coder(annotation: Any) -> _Coder:
    """The coder of one type, compiled at its first use."""
    if isinstance(annotation, type) and issubclass(annotation, Message):
        return _message_coder(annotation)
    if annotation == Buffer:
        return _Coder(_attach, lambda value, cursor: cursor.take(value))
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _optional_coder(arguments)
    if origin is tuple and arguments[1:] == (...,):
        return _tuple_coder(_coder(arguments[0]))
    if origin is dict:
        return _dict_coder(_coder(arguments[0]), _coder(arguments[1]))
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    raise TypeError(f"a message field cannot be of type {annotation}")


def _attach(value: Buffer, attachments: list[Buffer]) -> int:
    attachments.append(value)
    return len(attachments) - 1


def _decode_int(value: Any, _: _Attachments) -> int:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise ProtocolError("an integer field holds something else")
    return value


def _decode_bool(value: Any, _: _Attachments) -> bool:
    if type(value) is not bool:
        raise ProtocolError("a boolean field holds something else")
    return value


def _decode_str(value: Any, _: _Attachments) -> str:
    if type(value) is not str or len(value) > MAX_STRING:
        raise ProtocolError("a string field holds something else, or too much")
    return value


def _same(value: Any, _: list[Buffer]) -> Any:
    return value


_SCALARS: dict[Any, _Coder] = {
    int: _Coder(_same, _decode_int, plain=True),
    bool: _Coder(_same, _decode_bool, plain=True),
    str: _Coder(_same, _decode_str, plain=True),
}


def _optional_coder(arguments: tuple[Any, ...]) -> _Coder:
    members = [a for a in arguments if a is not types.NoneType]
    inner = _coder(Buffer if set(members) == set(get_args(Buffer)) else members[0])
    return _Coder(
        _same if inner.plain else lambda value, att: None if value is None else inner.encode(value, att),
        lambda value, cursor: None if value is None else inner.decode(value, cursor),
        inner.plain,
    )


def _tuple_coder(item: _Coder) -> _Coder:
    encode_item, decode_item = item.encode, item.decode

    def decode(value: Any, cursor: _Attachments) -> tuple[Any, ...]:
        if type(value) is not list:
            raise ProtocolError("an array field holds something else")
        return tuple([decode_item(v, cursor) for v in value])

    if item.plain:
        return _Coder(_same, decode, plain=True)
    return _Coder(lambda value, att: [encode_item(v, att) for v in value], decode)


def _dict_coder(key: _Coder, item: _Coder) -> _Coder:
    def decode(value: Any, cursor: _Attachments) -> dict[Any, Any]:
        if type(value) is not dict:
            raise ProtocolError("a map field holds something else")
        return {key.decode(k, cursor): item.decode(v, cursor) for k, v in value.items()}

    if not (key.plain and item.plain):
        raise TypeError("maps in messages hold scalars or tuples of them")
    return _Coder(_same, decode, plain=True)


def _message_coder(cls: type[Message]) -> _Coder:
    hints = get_type_hints(cls)
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]  # every concrete message is a dataclass
    coders = [_coder(hints[name]) for name in names]
    encoders = [(name, None if coder.plain else coder.encode) for name, coder in zip(names, coders, strict=True)]
    decoders = [coder.decode for coder in coders]
    width = len(names)

    def encode(message: Any, attachments: list[Buffer]) -> list[Any]:
        return [
            getattr(message, name) if enc is None else enc(getattr(message, name), attachments)
            for name, enc in encoders
        ]

    def decode(value: Any, cursor: _Attachments) -> Message:
        if type(value) is not list or len(value) != width:
            raise ProtocolError(f"{cls.__name__} has {width} fields")
        return cls(*[dec(v, cursor) for dec, v in zip(decoders, value, strict=True)])

    return _Coder(encode, decode)
