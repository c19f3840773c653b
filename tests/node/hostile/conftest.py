from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.hostile.live_listeners import LiveListeners


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveListeners]:
    """Start one broker for all tests of a module, so that later tests find damage that earlier ones have done."""
    directory: Path = tmp_path_factory.mktemp("broker")
    with LiveListeners(directory).open() as opened:
        yield opened
