"""The process of a broker: its start and stop, its registration and session in ZooKeeper, and its log.

Start with `broker.py`, which puts the parts of `node/` together. `main.py` runs it as a program.
"""
