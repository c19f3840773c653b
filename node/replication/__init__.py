"""Replicas of this broker: appends as a leader, fetches as a follower, ISR updates.

Start with `replica_manager.py`. The rules themselves are in `cluster/replication`.
"""
