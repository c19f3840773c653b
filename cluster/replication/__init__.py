"""The rules of replication. Start with `partition.py` (the leader's high watermark and ISR), then `follower.py`."""
