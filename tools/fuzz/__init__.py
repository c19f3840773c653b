"""Gives every reader of bytes arbitrary inputs, which must cause no crash, no hang and no memory growth.

`scripts/fuzz` runs it. Start with `targets/target.py`, then `watch.py` and `worker.py`, the two processes.
"""
