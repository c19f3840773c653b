"""The state of the cluster in ZooKeeper, in Kafka's znodes.

Start with `client.py`, the reads and writes of the cluster. `store.py` is the interface to a ZooKeeper;
`kazoo_store.py` implements it with kazoo, and `in_memory/` for tests and simulations.
"""
