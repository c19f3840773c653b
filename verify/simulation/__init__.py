"""The deterministic simulation: brokers, clients, disks and network of a cluster in one process, on virtual time.

Start at `run.py` (one simulation) and `scenario.py` (its faults and clients).
"""
