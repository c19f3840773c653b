"""The mechanism of requests that wait for a condition. Start with `purgatory.py`, which is pure.

`node/replication/purgatories.py` has the purgatories of a broker.
"""
