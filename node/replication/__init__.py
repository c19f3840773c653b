"""Host the replicas of this broker: append as a leader, fetch as a follower, update the ISR.

Start with `replica_manager.py`. The rules are in `cluster/replication`; this folder applies them.
"""
