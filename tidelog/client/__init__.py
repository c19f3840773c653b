"""The clients of a cluster and the parts that they share.

Start with `cluster_client.py`, which finds brokers and leaders. The clients themselves are in `producer/`, `consumer/`
and `admin/` (synchronous) and in `tidelog.aio`.
"""
