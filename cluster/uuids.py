"""The ids of topics and of the cluster, as Kafka writes them."""

from __future__ import annotations

import base64
import random
import uuid

_SYSTEM = random.SystemRandom()


def random_uuid(rng: random.Random = _SYSTEM) -> str:
    """Return a random UUID as 22 base64url characters, of which the first is never "-".

    A command line would take a UUID that begins with "-" for an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.UUID(int=rng.getrandbits(128), version=4).bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
