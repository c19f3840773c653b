"""Lists all targets by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tools.fuzz.targets import files, frames, groups, kafka_clients, kafka_connections, kafka_frames, records, settings
from tools.fuzz.targets.target import Target

TARGETS: Final[Mapping[str, Target]] = {
    target.name: target
    for module in (frames, kafka_frames, kafka_connections, kafka_clients, records, files, groups, settings)
    for target in module.TARGETS
}
