"""Inputs that are kept, the bytes as they are: a directory for each target in `tests/fuzz/corpus`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.fuzz.targets.target import Target

CORPUS: Final = Path(__file__).parents[2] / "tests" / "fuzz" / "corpus"
#: No longer ones are kept, nor tried: what is long is slow, and seldom something else.
MOST_BYTES: Final = 4096


def directory_of(target: Target) -> Path:
    """Where its inputs lie."""
    return CORPUS / target.name


def kept(target: Target) -> list[bytes]:
    """What is kept for it, in the order of the names."""
    directory = directory_of(target)
    return [path.read_bytes() for path in sorted(directory.iterdir())] if directory.exists() else []


def beginnings(target: Target) -> Sequence[bytes]:
    """What a fuzzer begins with: the seeds, then what is kept."""
    return [*target.seeds(), *kept(target)]


def keep(target: Target, data: bytes, kind: str) -> Path:
    """`kind` begins the name, which says no more than which bytes these are."""
    path = directory_of(target) / f"{kind}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
