"""Read and write the variable-length parts of Kafka's wire format: lengths as varints, tagged fields, topic ids.

Fixed-size numbers are big-endian, and are packed and unpacked with `struct` by the code that `codec.py` compiles.
A reader raises ProtocolError for a wrong value, and IndexError if the data ends inside a number; the callers of
compiled code turn the IndexError into a ProtocolError.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from tidelog.errors import ProtocolError
from tidelog.model import Buffer

#: Maximum bytes of a string as UTF-8. In versions that are not flexible the length is an int16.
MAX_STRING_BYTES = 32767
#: Maximum tagged fields of one structure that are read. Kafka defines at most five.
MAX_TAGGED_FIELDS = 20
#: The topic id of no topic, and of messages whose version has no topic ids.
ZERO_UUID = bytes(16)

_MAX_INT32 = 2**31 - 1


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Return the unsigned number of at most 31 bits at `position`, and the position after it."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MAX_INT32:
                break
            return value, position
    raise ProtocolError(f"a varint of more than 31 bits before byte {position}")


def write_uvarint(value: int) -> bytes:
    """Return the 1–5 bytes of an unsigned number, seven bits per byte, the lowest first."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """Return the position after the tagged fields at `position`."""
    if not data[position]:
        return position + 1  # nearly every structure has none
    return read_tagged_fields(data, position)[1]


def read_tagged_fields(data: Buffer, position: int) -> tuple[dict[int, Buffer], int]:
    """Return the bytes of the tagged fields (KIP-482) at `position` by tag, and the position after the last one."""
    count, position = read_uvarint(data, position)
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(f"{count} tagged fields in one structure")
    found: dict[int, Buffer] = {}
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        end = position + size
        if end > len(data):
            raise ProtocolError(f"a tagged field of {size} bytes, but only {len(data) - position} are left")
        if tag in found:
            raise ProtocolError(f"two tagged fields {tag} in one structure")
        found[tag] = data[position:end]
        position = end
    return found, position


def write_tagged_fields(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the tagged fields of one structure from the tags, in ascending order, and the bytes of their values."""
    parts = [part for tag, value in fields for part in (write_uvarint(tag), write_uvarint(len(value)), value)]
    return b"".join((write_uvarint(len(parts) // 3), *parts))


def uuid_to_text(uuid: bytes) -> str:
    """Return the base64url text of a UUID as Kafka's tools show it; empty for the zero UUID."""
    return "" if uuid == ZERO_UUID else base64.urlsafe_b64encode(uuid)[:22].decode()


def uuid_from_text(text: str) -> bytes:
    """Return the 16 bytes of a UUID's base64url text; the zero UUID for an empty text, ValueError for other texts."""
    if not text:
        return ZERO_UUID
    try:
        uuid = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        uuid = b""
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a UUID in base64url")
    return uuid


def length_error(name: str, length: int, left: int) -> ProtocolError:
    """Return the error for a field whose length is null, or more than its maximum or than the bytes that are left."""
    if length == -1:
        return ProtocolError(f"{name}: null is not allowed in this version")
    return ProtocolError(f"{name}: a length of {length}, but {left} bytes are left")
