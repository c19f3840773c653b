"""Inputs from a seed: those that are known, cut, mixed, and with bytes that are others."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tools.fuzz.corpus import MOST_BYTES

_TELLING = (0, 1, 0x7F, 0x80, 0xFF, 0x20, 0x0A)
_NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 127, 128, 255, 256, 65535)


def mutations(seed: int, beginnings: Sequence[bytes], dictionary: Sequence[bytes] = ()) -> Iterator[bytes]:
    """Without end; the same for the same arguments."""
    dice = random.Random(seed)
    known = [data[:MOST_BYTES] for data in beginnings] or [b""]
    while True:
        data = bytearray(dice.choice(known))
        for _ in range(1 + int(dice.expovariate(0.7))):
            _change(data, dice, known, dictionary)
        yield bytes(data[:MOST_BYTES])


def _change(data: bytearray, dice: random.Random, known: Sequence[bytes], dictionary: Sequence[bytes]) -> None:
    at = dice.randint(0, len(data))
    match dice.randrange(9):
        case 0 if at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        case 1 if at < len(data):
            data[at] = dice.choice(_TELLING)
        case 2 if at < len(data):
            data[at] = (data[at] + dice.choice((-1, 1))) % 256
        case 3:
            del data[at : at + 1 + int(dice.expovariate(0.2))]
        case 4:
            data[at:at] = dice.randbytes(1 + int(dice.expovariate(0.3)))
        case 5:
            size = dice.choice((1, 2, 4, 8))
            number = dice.choice(_NUMBERS) % (1 << 8 * size)
            data[at : at + size] = number.to_bytes(size, dice.choice(("big", "little")))
        case 6:
            other = dice.choice(known)
            start = dice.randint(0, len(other))
            data[at : at + dice.choice((0, 8, 64, MOST_BYTES))] = other[
                start : start + dice.choice((4, 16, 64, MOST_BYTES))
            ]
        case 7 if dictionary:
            data[at:at] = dice.choice(dictionary)
        case _:
            length = 1 + int(dice.expovariate(0.1))
            data[at:at] = bytes(data[at : at + length]) * dice.choice((1, 1, 2, 30))
