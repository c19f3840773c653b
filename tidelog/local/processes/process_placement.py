"""Where a process of a local cluster runs, when that is not simply this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.local.processes.ports import LOOPBACK


@dataclass(frozen=True, slots=True)
class Place:
    """The default is where everything runs otherwise.

    address       the IPv4 address at which the process listens and others reach it
    prefix        put before its command line, as `ip netns exec NAME`; it must replace itself by the command, so that
                  the process that we start is the one that we signal
    environment   added to ours, as LD_PRELOAD
    data_dir      its data directory; None: where the cluster puts it
    """

    address: str = LOOPBACK
    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    data_dir: Path | None = None


HERE = Place()
#: The name of ZooKeeper's place among those of a cluster; a broker's is its id ("1").
ZOOKEEPER = "zookeeper"
