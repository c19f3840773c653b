"""One broker process.

Start with `broker.py`, which puts the parts together, then `replication/replica_manager.py` and `handlers/`.
"""
