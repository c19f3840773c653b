"""The translations of groups: membership, committed offsets, and administration.

Start with `membership.py`, whose messages form a rebalance in the order Join, Sync, Heartbeat, Leave.
"""
