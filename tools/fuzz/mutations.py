"""Generates inputs from a seed: known inputs that are cut, mixed, and changed in some bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tools.fuzz.corpus import MOST_BYTES

_SPECIAL_BYTES = (0, 1, 0x7F, 0x80, 0xFF, 0x20, 0x0A)
_NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 127, 128, 255, 256, 65535)


def mutations(seed: int, starting_inputs: Sequence[bytes], dictionary: Sequence[bytes] = ()) -> Iterator[bytes]:
    """Yield changed and mixed starting inputs of at most MOST_BYTES, without end.

    The same arguments yield the same inputs. `dictionary` has bytes that are inserted now and then.
    """
    rng = random.Random(seed)
    known = [data[:MOST_BYTES] for data in starting_inputs] or [b""]
    while True:
        data = bytearray(rng.choice(known))
        for _ in range(1 + int(rng.expovariate(0.7))):
            _change(data, rng, known, dictionary)
        yield bytes(data[:MOST_BYTES])


def _change(data: bytearray, rng: random.Random, known: Sequence[bytes], dictionary: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    match rng.randrange(9):
        case 0 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 1 if at < len(data):
            data[at] = rng.choice(_SPECIAL_BYTES)
        case 2 if at < len(data):
            data[at] = (data[at] + rng.choice((-1, 1))) % 256
        case 3:
            del data[at : at + 1 + int(rng.expovariate(0.2))]
        case 4:
            data[at:at] = rng.randbytes(1 + int(rng.expovariate(0.3)))
        case 5:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice(_NUMBERS) % (1 << 8 * size)
            data[at : at + size] = number.to_bytes(size, rng.choice(("big", "little")))
        case 6:
            other = rng.choice(known)
            start = rng.randint(0, len(other))
            data[at : at + rng.choice((0, 8, 64, MOST_BYTES))] = other[
                start : start + rng.choice((4, 16, 64, MOST_BYTES))
            ]
        case 7 if dictionary:
            data[at:at] = rng.choice(dictionary)
        case _:
            length = 1 + int(rng.expovariate(0.1))
            data[at:at] = bytes(data[at : at + length]) * rng.choice((1, 1, 2, 30))
