"""Encode and decode the messages of Kafka's protocol.

The code for a message in a version is compiled at its first use, which takes about a millisecond. For any bytes of a
peer, decoding returns a complete, well-typed message or raises ProtocolError. Memory is allocated only for bytes that
have arrived, but an array of small structures takes up to a hundred times its bytes, so the caller bounds a message's
size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

from tidelog.errors import ProtocolError, UnsupportedVersionError
from tidelog.model import Buffer, StoredBytes
from tidelog.protocol.kafka.decoder import MALFORMED, Decoder, compile_decoder
from tidelog.protocol.kafka.encoder import UNENCODABLE, Encoder, compile_encoder
from tidelog.protocol.kafka.schema import Message, Struct, has_records

M = TypeVar("M", bound=Message)

#: Compiled decoders; True with those that take a memoryview, because their message has record bytes.
_decoders: dict[tuple[type[Message], int], tuple[Decoder, bool]] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}
#: Compiled encoders of structures, by the message that they are in, and its version.
_element_encoders: dict[tuple[type[Struct], type[Message], int], Encoder] = {}

#: A part of an encoded message.
Part = Buffer | StoredBytes


def decode(cls: type[M], version: int, body: Buffer, *, ignores_rest: bool = False) -> M:
    """Return the message of which `body` consists; ProtocolError if the body is anything else.

    With `ignores_rest`, further bytes may follow the message. Record bytes are views of the body; all other fields are
    copies.
    """
    decoder, as_view = _decoders.get((cls, version)) or _decoder(cls, version)
    data: Any = memoryview(body) if as_view else body if type(body) is bytes else bytes(body)
    try:
        message, end = decoder(data, 0)
    except MALFORMED as error:
        raise ProtocolError(f"{cls.__name__} version {version}: {error}") from None
    if end != len(data) and not ignores_rest:
        raise ProtocolError(f"{cls.__name__} version {version}: {len(data) - end} bytes after the end")
    return cast(M, message)


def encode(message: Message, version: int) -> bytes:
    """Return the body of a message.

    Raises UnsupportedVersionError if the version lacks a field that has a value, and ProtocolError if a value is too
    large for its field. No field may have stored bytes.
    """
    return b"".join(cast(list[Buffer], encode_buffers(message, version)))


def encode_buffers(message: Message, version: int) -> list[Part]:
    """Return the body of a message as `encode` does, in buffers of which every second one is record bytes, uncopied."""
    cls = type(message)
    encoder = _encoders.get((cls, version)) or _encoder(cls, version)
    buffers: list[Part] = []
    parts: list[bytes] = []

    def attach(records: Part) -> None:
        buffers.append(b"".join(parts))
        buffers.append(records)
        parts.clear()

    try:
        encoder(message, parts.append, attach)
    except UNENCODABLE as error:
        raise ProtocolError(f"{cls.__name__} version {version} cannot be encoded: {error}") from None
    buffers.append(b"".join(parts))
    return buffers


def encode_elements(elements: Iterable[Struct], message: type[Message], version: int) -> bytes:
    """Return the bytes of these structures, which are elements of an array in this message and version.

    They must have no records. Raises the errors of `encode`.
    """
    parts: list[bytes] = []
    try:
        for element in elements:
            cls = type(element)
            encoder = _element_encoders.get((cls, message, version)) or _element_encoder(cls, message, version)
            encoder(element, parts.append, _no_records)
    except UNENCODABLE as error:
        raise ProtocolError(f"{message.__name__} version {version} cannot be encoded: {error}") from None
    return b"".join(parts)


def is_flexible(cls: type[Message], version: int) -> bool:
    """Return whether this version has compact lengths and tagged fields."""
    return cls.flexible_from is not None and version >= cls.flexible_from


def _decoder(cls: type[Message], version: int) -> tuple[Decoder, bool]:
    _check(cls, version)
    as_view = has_records(cls)
    compiled = compile_decoder(cls, version, is_flexible(cls, version), as_view)
    return _decoders.setdefault((cls, version), (compiled, as_view))


def _encoder(cls: type[Message], version: int) -> Encoder:
    _check(cls, version)
    return _encoders.setdefault((cls, version), compile_encoder(cls, version, is_flexible(cls, version)))


def _element_encoder(cls: type[Struct], message: type[Message], version: int) -> Encoder:
    _check(message, version)
    compiled = compile_encoder(cls, version, is_flexible(message, version))
    return _element_encoders.setdefault((cls, message, version), compiled)


def _no_records(records: Part) -> None:
    raise AssertionError("an element of an array that is encoded alone has no records")


def _check(cls: type[Message], version: int) -> None:
    if version not in cls.valid:
        first, last = cls.valid
        raise UnsupportedVersionError(f"{cls.__name__} version {version} is not one of {first}–{last}")
