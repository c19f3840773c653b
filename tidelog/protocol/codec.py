"""Encode messages to frames and decode frames to messages (docs/PROTOCOL.md).

A message is sent as a list of frames: an envelope, then the record bytes to which it refers. The envelope is one
msgpack array of a header and a body, because each further frame costs both sides about as much as decoding the
envelope. A body is the array of its dataclass's fields in order, without fields of later versions than the request's.
A nested message is a nested array. A `Buffer` field holds the index of the frame with its bytes; every such frame is
referred to exactly once, in order. Coders are compiled once for each class and version from its annotations.

For any bytes of a peer, decoding returns a complete, well-typed message or raises ProtocolError.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgpack

from tidelog.errors import ProtocolError
from tidelog.frozen_dataclass import version_of
from tidelog.model import Buffer
from tidelog.protocol.messages import Message

#: Maximum size of a frame; ZeroMQ rejects a larger one before it allocates memory.
MAX_FRAME_BYTES = 64 * 1024 * 1024
#: Maximum sizes of request envelopes from clients and from brokers. A decoded envelope can take seventy times its bytes
#: in memory, and blocks the event loop while it is decoded.
MAX_CLIENT_ENVELOPE_BYTES = 1 << 20
MAX_BROKER_ENVELOPE_BYTES = 16 << 20
#: Maximum bytes of a string in an envelope, as UTF-8.
MAX_STRING = 32767

#: Denotes the version in which messages have all their fields.
NEWEST = 1 << 15

_FRAMING = 0
_INT64 = 1 << 63
_UINT64_TAG = 0xCF
#: The first bytes of every number of more than 63 bits; other data may contain them, too.
_HUGE_NUMBER = re.compile(b"\xcf[\x80-\xff]")

M = TypeVar("M", bound=Message)


class RequestHeader(NamedTuple):
    """The header of a request.

    client_id         the sender's name for logs
    cluster_id        the id of the cluster that the request is meant for; "" for any cluster
    deadline_ms       when the sender stops waiting, on the addressee's monotonic clock (learned in the handshake); −1
                      in the handshake itself
    sender_epoch      the sending broker's epoch (czxid of its registration), −1 from clients
    addressee_epoch   the epoch of the addressed broker; −1 for any epoch
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
    """The header of a response. With an `error_code` ≠ 0 the whole request was rejected, and no body follows.

    `correlation_id` is that of the request.
    """

    correlation_id: int
    error_code: int
    error_message: str | None


# The types of all fields as one tuple, with the framing's first, so that a header needs one comparison.
_Types = frozenset[tuple[type, ...]]
_REQUEST_TYPES: _Types = frozenset({(int, int, int, int, str, str, int, int, int)})
_RESPONSE_TYPES: _Types = frozenset({(int, int, int, str), (int, int, int, type(None))})


class Body:
    """A received body whose message class is not known yet: its array, and the frames of record bytes."""

    __slots__ = ("_frames", "_next", "_value")

    def __init__(self, value: Any, frames: Sequence[Buffer] = ()) -> None:
        self._value = value
        self._frames = frames
        self._next = 0

    def read(self, cls: type[M], version: int = NEWEST) -> M:
        """Return the body as a message of this class; may be called once.

        Raises ProtocolError if the body is not exactly one `cls` of that version, or if a frame belongs to no field.
        """
        kind: Any = cls
        message: M = _message_coder(kind, version).decode(self._value, self)
        if self._next != len(self._frames):
            raise ProtocolError(f"{cls.__name__}: no field refers to {len(self._frames) - self._next} of the frames")
        return message

    def take(self, index: int) -> Buffer:
        """Return the frame of record bytes with this index, for a `Buffer` field.

        Raises ProtocolError if it is not the first frame that was not taken yet.
        """
        if index != self._next or index >= len(self._frames):
            raise ProtocolError("a records field does not refer to the next frame")
        self._next += 1
        return self._frames[index]


def encode(
    header: RequestHeader | ResponseHeader, message: Message | None = None, version: int = NEWEST
) -> list[Buffer]:
    """Return the frames of a message: the envelope, then the uncopied bytes of each `Buffer` field.

    `message` None gives an envelope without a body, as for an error. `version` is that of the request; fields of later
    versions are left out. Raises ProtocolError for a string of more than MAX_STRING bytes, a string that is not
    UTF-8, or a number beyond 64 bits. Sizes of envelopes and frames are not checked.
    """
    if message is None:
        return [_pack(((_FRAMING, *header),))]
    attachments: list[Buffer] = []
    kind: Any = type(message)
    body = _message_coder(kind, version).encode(message, attachments)
    return [_pack(((_FRAMING, *header), body)), *attachments]


def encode_body(message: Message, version: int = NEWEST) -> bytes:
    """Return the body of a message without record bytes, as `encode` has it in the envelope."""
    attachments: list[Buffer] = []
    kind: Any = type(message)
    body = _message_coder(kind, version).encode(message, attachments)
    assert not attachments, "only messages without record bytes are sent without an envelope"
    return _pack(body)


def decode_body(data: Buffer, cls: type[M], version: int = NEWEST) -> M:
    """Return the message of a body that `encode_body` has made; ProtocolError if the bytes are anything else."""
    value = _unpack(data)
    if _UINT64_TAG in bytes(data) and _has_huge_number(value):
        raise ProtocolError(f"{cls.__name__}: a number beyond signed 64 bits")
    return Body(value).read(cls, version)


def decode_request(frames: Sequence[Buffer]) -> tuple[RequestHeader, Body]:
    """Return the header and the undecoded body of a request.

    Raises ProtocolError if the frames have no valid request header. `Body.read` checks the body.
    """
    fields, body = _decode(frames, _REQUEST_TYPES)
    return RequestHeader._make(fields), body


def decode_response(frames: Sequence[Buffer]) -> tuple[ResponseHeader, Body]:
    """Return the header and the undecoded body of a response.

    Raises ProtocolError if the frames have no valid response header. `Body.read` checks the body.
    """
    fields, body = _decode(frames, _RESPONSE_TYPES)
    return ResponseHeader._make(fields), body


def _decode(frames: Sequence[Buffer], allowed: _Types) -> tuple[list[Any], Body]:
    envelope = _unpack(frames[0]) if frames else None
    if type(envelope) is not list or not 1 <= len(envelope) <= 2:
        raise ProtocolError("not a message of this protocol")
    header, body = envelope[0], envelope[1] if len(envelope) == 2 else None
    if type(header) is not list or tuple(map(type, header)) not in allowed or header[0] != _FRAMING:
        raise ProtocolError("not a header of this protocol")
    # Only this tag can introduce a number beyond signed 64 bits, so envelopes without this byte need no search.
    if _UINT64_TAG in bytes(frames[0]) and _HUGE_NUMBER.search(frames[0]):
        if _has_huge_number(header):
            raise ProtocolError("a header with a number beyond signed 64 bits")
        if _has_huge_number(body):
            body = None  # no message class accepts it
    del header[0]
    return header, Body(body, frames[1:])


def _pack(envelope: Sequence[Any]) -> bytes:
    try:
        packed: bytes = msgpack.packb(envelope)
    except (UnicodeEncodeError, OverflowError) as error:
        raise ProtocolError(f"the message cannot be encoded: {error}") from None
    # Only a long envelope can contain a string that is too long, so that nearly all envelopes need no check.
    if len(packed) > MAX_STRING:
        try:
            _unpack(packed)
        except ProtocolError:
            raise ProtocolError(f"a string of more than {MAX_STRING} bytes cannot be sent") from None
    return packed


def _unpack(frame: Buffer) -> Any:
    """Return the decoded frame; ProtocolError if it is not msgpack, or has a string of more than MAX_STRING bytes."""
    try:
        return msgpack.unpackb(frame, strict_map_key=False, max_str_len=MAX_STRING)
    except (ValueError, TypeError, RecursionError) as error:  # msgpack's own errors derive from ValueError
        raise ProtocolError(f"not msgpack, or a string that is too long: {type(error).__name__}") from None


def _has_huge_number(value: Any) -> bool:
    """Return whether a decoded value has a number beyond signed 64 bits, at any depth.

    The search does not recurse, because msgpack decodes arrays that are nested deeper than Python's recursion limit.
    """
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            left += each.keys()
            left += each.values()
        elif isinstance(each, int) and each >= _INT64:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Coder:
    """The encoding and decoding of one type of field.

    wire     the Python types into which msgpack may decode a value; the coder of the enclosing message, tuple or dict
             checks them before it calls `decode`
    encode   returns the value to pack, and appends record bytes to the list; None if the value is packed unchanged
    decode   returns the field's value; None if the unpacked value is the field's value
    """

    wire: frozenset[type]
    encode: Callable[[Any, list[Buffer]], Any] | None = None
    decode: Callable[[Any, Body], Any] | None = None


class _MessageCoder(NamedTuple):
    encode: Callable[[Any, list[Buffer]], list[Any]]
    decode: Callable[[Any, Body], Any]


_LIST = frozenset({list})
_DICT = frozenset({dict})


@cache
def _coder(annotation: Any, version: int) -> _Coder:
    """Return the coder of one field type in this version. Raises TypeError for a type that no message may have."""
    if isinstance(annotation, type) and issubclass(annotation, Message):
        kind: Any = annotation
        return _Coder(_LIST, *_message_coder(kind, version))
    if annotation == Buffer:
        return _Coder(frozenset({int}), _attach, lambda value, body: body.take(value))
    if annotation in (int, bool, str, bytes):
        return _Coder(frozenset({annotation}))
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _optional_coder(arguments, version)
    if origin is tuple and arguments[1:] == (...,):
        return _tuple_coder(_coder(arguments[0], version))
    if origin is dict:
        return _dict_coder(_coder(arguments[0], version), _coder(arguments[1], version))
    raise TypeError(f"a message field cannot be of type {annotation}")


def _attach(value: Buffer, attachments: list[Buffer]) -> int:
    attachments.append(value)
    return len(attachments) - 1


def _optional_coder(arguments: tuple[Any, ...], version: int) -> _Coder:
    members = [a for a in arguments if a is not types.NoneType]
    inner = _coder(Buffer if set(members) == set(get_args(Buffer)) else members[0], version)
    encode, decode = inner.encode, inner.decode
    return _Coder(
        inner.wire | {types.NoneType},
        encode and (lambda value, attachments: None if value is None else encode(value, attachments)),
        decode and (lambda value, body: None if value is None else decode(value, body)),
    )


def _tuple_coder(item: _Coder) -> _Coder:
    wire, encode_item, decode_item = item.wire, item.encode, item.decode

    def decode(value: list[Any], body: Body) -> tuple[Any, ...]:
        if not wire.issuperset(map(type, value)):
            raise ProtocolError("an array field has an element of a wrong type")
        return tuple(value) if decode_item is None else tuple([decode_item(each, body) for each in value])

    return _Coder(
        _LIST,
        encode_item and (lambda value, attachments: [encode_item(each, attachments) for each in value]),
        decode,
    )


def _dict_coder(key: _Coder, item: _Coder) -> _Coder:
    decode_item = item.decode
    if key.encode or key.decode or item.encode:
        raise TypeError("maps in messages hold scalars or tuples of them")

    def decode(value: dict[Any, Any], body: Body) -> dict[Any, Any]:
        if not key.wire.issuperset(map(type, value)) or not item.wire.issuperset(map(type, value.values())):
            raise ProtocolError("a map field has a key or a value of a wrong type")
        return value if decode_item is None else {k: decode_item(v, body) for k, v in value.items()}

    return _Coder(_DICT, None, decode)


@cache
def _message_coder(cls: type[Message], version: int) -> _MessageCoder:
    hints = get_type_hints(cls)
    every = fields(cls)  # type: ignore[arg-type]  # every concrete message is a dataclass
    names = [f.name for f in every if version_of(f) <= version]
    assert names == [f.name for f in every[: len(names)]], "fields of later versions come last"
    coders = [_coder(hints[name], version) for name in names]
    encoders = [(index, coder.encode) for index, coder in enumerate(coders) if coder.encode]
    decoders = [(index, coder.decode) for index, coder in enumerate(coders) if coder.decode]
    # All types as one tuple, so that a message needs one comparison instead of a call for each field.
    allowed = frozenset(product(*(coder.wire for coder in coders)))
    values_of = attrgetter(*names) if len(names) > 1 else lambda message: [getattr(message, name) for name in names]

    def encode(message: Any, attachments: list[Buffer]) -> list[Any]:
        values = list(values_of(message))
        for index, encode_field in encoders:
            values[index] = encode_field(values[index], attachments)
        return values

    def decode(values: Any, body: Body) -> Message:
        if type(values) is not list or tuple(map(type, values)) not in allowed:
            raise ProtocolError(f"{cls.__name__}: the body does not have its {len(names)} fields with their types")
        for index, decode_field in decoders:
            values[index] = decode_field(values[index], body)
        return cls(*values)

    return _MessageCoder(encode, decode)
