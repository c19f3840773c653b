"""The ids of topics and of the cluster, as Kafka writes them."""

from __future__ import annotations

import base64
import random
import uuid

_SYSTEM = random.SystemRandom()


def random_uuid(dice: random.Random = _SYSTEM) -> str:
    """A random UUID in base64url form (22 characters) that a command line would not take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.UUID(int=dice.getrandbits(128), version=4).bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
