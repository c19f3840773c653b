"""The rules of the controller: leader election, reassignment, unclean recovery and topic deletion.

Start with `controller.py`, whose methods are the events. `election.py` chooses a leader from an ISR.
"""
