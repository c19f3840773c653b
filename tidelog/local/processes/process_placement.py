"""The placement of a process of a local cluster that does not simply run on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.local.processes.ports import LOOPBACK


@dataclass(frozen=True, slots=True)
class Placement:
    """How and where one process runs. The default is the usual placement on this machine.

    address       the IPv4 address at which the process listens and is reached
    prefix        comes before the command line, as `ip netns exec NAME`; the prefix must replace itself by the command
                  (exec), so that signals reach the command
    environment   variables that are added to the environment, as LD_PRELOAD
    data_dir      the data directory; None: the usual directory of the cluster
    """

    address: str = LOOPBACK
    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    data_dir: Path | None = None


DEFAULT_PLACEMENT = Placement()
#: The name of ZooKeeper's placement in a cluster; the name of a broker's placement is its id ("1").
ZOOKEEPER = "zookeeper"
