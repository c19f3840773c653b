"""Values that nobody changes, made at the price of those that anybody may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """A dataclass with slots, a hash, and fields that only the type checker protects.

    At run time a frozen dataclass is five times as slow to make (0.9 instead of 0.18 µs for eight fields), and each
    request makes about ten of these.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
