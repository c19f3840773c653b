"""The rules of the cluster and its state in ZooKeeper: replication, controller and consumer groups.

The rules are pure: an event and the time go in, effects come out. Start with `state.py`, the values that ZooKeeper
stores, and `replication/partition.py`.
"""
