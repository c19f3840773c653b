"""The rules of the controller: leader election, reassignment, unclean recovery and topic deletion.

Start with `leader_selection.py`, which decides about one partition. `controller.py` turns events into decisions, and
decisions into effects.
"""
