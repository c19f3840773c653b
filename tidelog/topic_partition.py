"""The type TopicPartition, in a module that imports nothing of Tidelog, because both errors and the model use it.

Other modules import it from `tidelog.model`.
"""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic.

    Example:

        consumer.assign([TopicPartition("orders", 0), TopicPartition("orders", 1)])
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
