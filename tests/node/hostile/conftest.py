from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.hostile.live_listeners import LiveDoors


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDoors]:
    """One broker for all that a module does to it: what an earlier test broke, a later one finds."""
    directory: Path = tmp_path_factory.mktemp("broker")
    with LiveDoors(directory).open() as opened:
        yield opened
