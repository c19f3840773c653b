"""Stores inputs as raw bytes in `tests/fuzz/corpus`, in a directory for each target."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.fuzz.targets.target import Target

CORPUS: Final = Path(__file__).parents[2] / "tests" / "fuzz" / "corpus"
#: Longer inputs are neither stored nor tried, because they are slow and seldom find more.
MOST_BYTES: Final = 4096


def directory_of(target: Target) -> Path:
    """Return the directory of a target's stored inputs, which may not exist."""
    return CORPUS / target.name


def stored(target: Target) -> list[bytes]:
    """Return the stored inputs of a target, in the order of their names."""
    directory = directory_of(target)
    return [path.read_bytes() for path in sorted(directory.iterdir())] if directory.exists() else []


def starting_inputs(target: Target) -> Sequence[bytes]:
    """Return the inputs that a fuzzer starts from: the seeds, then the stored inputs."""
    return [*target.seeds(), *stored(target)]


def keep(target: Target, data: bytes, kind: str) -> Path:
    """Store an input in the target's directory, and return its path; its name is `kind` and a digest of its bytes."""
    path = directory_of(target) / f"{kind}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
