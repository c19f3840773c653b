"""One broker process.

Start with `process/broker.py`, which puts the parts together, then `replication/replica_manager.py` and `handlers/`.
"""
