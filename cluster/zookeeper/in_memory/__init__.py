"""ZooKeeper's twin in memory: an ensemble, its sessions and its clients, without a socket or a thread.

    zookeeper = MemoryZooKeeper(clock, session_timeout_ms=6000, conditions=NetworkConditions(request_ms=(0, 5)), rng=Random(7))
    store = zookeeper.connect()         # a Store, like one of `cluster.zookeeper.kazoo_store`

Everything runs on the loop that calls it, virtual time included. What goes wrong is commanded (`drop`, `cut`, `expire`,
`stop`, …) or drawn from the rng as the `NetworkConditions` says.
"""

from cluster.zookeeper.in_memory.client import MemoryStore as MemoryStore
from cluster.zookeeper.in_memory.ensemble import MemoryZooKeeper as MemoryZooKeeper
from cluster.zookeeper.in_memory.network_conditions import FAULTLESS as FAULTLESS
from cluster.zookeeper.in_memory.network_conditions import NetworkConditions as NetworkConditions
