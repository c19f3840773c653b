"""What Tidelog costs on this machine, measured through its public API. `scripts/bench` runs it.

A benchmark is a small file: its settings, the figures that it yields, and a function that measures them once. The
frame (`frame.py`) repeats it, takes medians, and sets each figure beside its aim, beside the bound that the machine
puts to it (raw system calls, measured in the same run) and, on request, beside a real Kafka.
"""
