"""Read the generation and member id from librdkafka's group metadata, because confluent-kafka has no call for them.

The metadata is made for transactional producers and is opaque to users. Its form is "CGMDv2:", the generation as a
32-bit integer of this machine, and group id, member id and group instance id, each with a zero byte at its end.
"""

from __future__ import annotations

import sys
from typing import Final

from tidelog.model import ConsumerGroupMetadata

_MAGIC: Final = b"CGMDv2:"


def parse_identity(metadata: bytes) -> ConsumerGroupMetadata:
    """Return the identity in a consumer's group metadata. Raise ValueError for another form of metadata."""
    generation_end = len(_MAGIC) + 4
    if not metadata.startswith(_MAGIC) or metadata.count(b"\0", generation_end) < 2:
        raise ValueError(f"librdkafka's group metadata has another form: {metadata!r}")
    generation = int.from_bytes(metadata[len(_MAGIC) : generation_end], sys.byteorder, signed=True)
    group, member = (part.decode() for part in metadata[generation_end:].split(b"\0")[:2])
    return ConsumerGroupMetadata(group, generation, member)
