"""Measures what Tidelog costs on this machine, through its public API. `scripts/bench` runs it.

A benchmark is a small file: its settings, the figures that it yields, and a function that measures them once.
`runner.py` repeats it and takes medians. The table shows each figure beside its aim and beside its bound. A bound is
what the machine allows at best, measured by raw system calls in the same run. On request the table also shows a real
Kafka. Start with `catalog.py`.
"""
