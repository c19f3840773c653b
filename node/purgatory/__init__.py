"""The mechanism of requests that wait for a condition. Start with `purgatory.py`, which is pure.
`gradual_checks.py` spreads very many checks over turns of the event loop.

`node/replication/purgatories.py` has the purgatories of a broker.
"""
