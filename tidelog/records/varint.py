"""Zigzag varints, the integers inside a record.

A signed number n is first folded to an unsigned one (0, −1, 1, −2, … → 0, 1, 2, 3, …), then written
seven bits a byte, lowest first; the top bit of a byte says that another follows. Nearly every number
in a record is small, so the encodings of the small ones are looked up rather than computed.
"""

from __future__ import annotations

from tidelog.errors import CorruptMessageError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_TABLE_SIZE = 1 << 13  # every non-negative number whose varint has at most two bytes


def encode_varint(number: int) -> bytes:
    """The 1–5 bytes of a 32-bit number, the 1–10 bytes of a 64-bit one; the caller keeps to its range."""
    folded = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while folded > 0x7F:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    out.append(folded)
    return bytes(out)


class VarintTable(dict[int, bytes]):
    """number → prefix + its varint + suffix: small numbers from memory, others computed and not kept."""

    def __init__(self, prefix: bytes = b"", suffix: bytes = b"", size: int = _TABLE_SIZE) -> None:
        super().__init__((number, prefix + encode_varint(number) + suffix) for number in range(size))
        self._prefix = prefix
        self._suffix = suffix

    def __missing__(self, number: int) -> bytes:
        return self._prefix + encode_varint(number) + self._suffix


def read_folded(data: bytes, position: int, max_bytes: int = 5) -> tuple[int, int]:
    """The still folded number at `position` and the position after it.

    `max_bytes` is 5 for a 32-bit varint and 10 for a 64-bit one. CorruptMessageError if it does not end
    within them or means more bits than that; IndexError if the data ends first (decoders turn it into
    CorruptMessageError once for the whole batch).
    """
    folded = 0
    for index in range(max_bytes):
        byte = data[position + index]
        folded |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if folded >> (32 if max_bytes == 5 else 64):
                break
            return folded, position + index + 1
    raise CorruptMessageError(f"the varint at byte {position} is longer than its type allows")


def unfold(folded: int) -> int:
    """The signed number that `folded` stands for."""
    return folded >> 1 ^ -(folded & 1)
