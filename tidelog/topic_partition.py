"""The type TopicPartition, in a module that imports nothing of Tidelog, because both errors and the model use it.

Other modules import it from `tidelog.model`.
"""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
