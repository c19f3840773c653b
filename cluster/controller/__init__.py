"""The rules of the controller: elections, reassignment and deletion.

Start with `controller.py`, whose methods are the events. `election.py` chooses a leader from an ISR.
"""
