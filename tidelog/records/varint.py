"""Zigzag varints, the integers inside a record.

A signed number n is first folded to an unsigned one (0, −1, 1, −2, … → 0, 1, 2, 3, …), then written
seven bits a byte, lowest first; the top bit of a byte says that another follows. Nearly every number
in a record is small, so the encodings of the small ones are looked up rather than computed.
"""

from __future__ import annotations

from tidelog.errors import CorruptMessageError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

#: Every non-negative number below has a varint of at most two bytes, and is looked up.
TABLED = 1 << 13


def encode_varint(number: int) -> bytes:
    """The 1–5 bytes of a 32-bit number, the 1–10 bytes of a 64-bit one; the caller keeps to its range."""
    folded = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while folded > 0x7F:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    out.append(folded)
    return bytes(out)


def varint_table(prefix: bytes = b"") -> tuple[bytes, ...]:
    """`table[n]` is prefix + the varint of n, for −1 ≤ n < `TABLED`: null's length is last, where index −1 finds it."""
    return tuple(prefix + encode_varint(number) for number in (*range(TABLED), -1))


def read_folded(data: bytes, position: int) -> tuple[int, int]:
    """The still folded 32-bit number at `position` and the position after it.

    CorruptMessageError for more than five bytes or 32 bits; IndexError if the data ends first, which decoders
    turn into CorruptMessageError once for the whole batch.
    """
    first = data[position]
    if first < 0x80:
        return first, position + 1
    second = data[position + 1]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 2
    return _read_long(data, position, 32)


def read_folded_64(data: bytes, position: int) -> tuple[int, int]:
    """As `read_folded`, for a number of up to ten bytes and 64 bits."""
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
    """The signed number that `folded` stands for."""
    return folded >> 1 ^ -(folded & 1)
