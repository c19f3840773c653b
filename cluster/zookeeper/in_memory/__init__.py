"""An in-memory ZooKeeper: an ensemble, its sessions and its clients, without sockets or threads.

    conditions = NetworkConditions(request_ms=(0, 5))
    zookeeper = MemoryZooKeeper(clock, session_timeout_ms=6000, conditions=conditions, rng=Random(7))
    store = zookeeper.connect()         # a Store, like that of `cluster.zookeeper.kazoo_store`

Everything runs on the caller's event loop, virtual time included. Faults are commanded (`drop`, `cut`, `expire`,
`stop`, …) or drawn from `rng` according to the `NetworkConditions`.
"""

from cluster.zookeeper.in_memory.client import MemoryStore as MemoryStore
from cluster.zookeeper.in_memory.ensemble import MemoryZooKeeper as MemoryZooKeeper
from cluster.zookeeper.in_memory.network_conditions import FAULTLESS as FAULTLESS
from cluster.zookeeper.in_memory.network_conditions import NetworkConditions as NetworkConditions
