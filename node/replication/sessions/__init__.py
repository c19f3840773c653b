"""Fetch sessions (KIP-227): the partitions of a fetch that both sides remember, so that only partitions with news cost.

Start with `follower_sessions.py`; `consumer_sessions.py` has those of Kafka's consumers.
"""
