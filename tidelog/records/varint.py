"""Encode and decode zigzag varints, the integers inside a record.

A signed number n is first folded to an unsigned one (0, −1, 1, −2, … → 0, 1, 2, 3, …), then written with seven bits per
byte, the lowest first; the top bit of a byte says that another byte follows. Nearly every number in a record is small,
so the encodings of small numbers are looked up instead of computed.
"""

from __future__ import annotations

from tidelog.errors import CorruptMessageError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

#: Every non-negative number below this has a varint of at most two bytes, which is looked up.
TABLED = 1 << 13


def encode_varint(number: int) -> bytes:
    """Return the 1–5 bytes of a 32-bit number, or the 1–10 bytes of a 64-bit one; the caller checks the range."""
    folded = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while folded > 0x7F:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    out.append(folded)
    return bytes(out)


def varint_table(prefix: bytes = b"") -> tuple[bytes, ...]:
    """Return a table with prefix + the varint of n at index n, for −1 ≤ n < `TABLED`; −1, a null's length, is last."""
    return tuple(prefix + encode_varint(number) for number in (*range(TABLED), -1))


def read_folded(data: bytes, position: int) -> tuple[int, int]:
    """Return the still folded 32-bit number at `position`, and the position after it.

    Raises CorruptMessageError for more than five bytes or 32 bits, and IndexError if the data ends first. Decoders turn
    the IndexError into one CorruptMessageError for the whole batch.
    """
    first = data[position]
    if first < 0x80:
        return first, position + 1
    second = data[position + 1]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 2
    return _read_long(data, position, 32)


def read_folded_64(data: bytes, position: int) -> tuple[int, int]:
    """Return the still folded 64-bit number at `position`, and the position after it.

    Raises CorruptMessageError for more than ten bytes or 64 bits, and IndexError if the data ends first.
    """
    first = data[position]
    if first < 0x80:
        return first, position + 1
    return _read_long(data, position, 64)


def _read_long(data: bytes, position: int, bits: int) -> tuple[int, int]:
    folded = 0
    for shift in range(0, bits, 7):
        byte = data[position]
        position += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            if folded >> bits:
                break
            return folded, position
    raise CorruptMessageError(f"a varint of more than {bits} bits before byte {position}")


def unfold(folded: int) -> int:
    """Return the signed number of which `folded` is the folded form."""
    return folded >> 1 ^ -(folded & 1)
