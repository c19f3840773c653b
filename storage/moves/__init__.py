"""A replica's move to another log directory of its broker (KIP-113).

Start with `log_move.py`, the steps of a move. `move_rules.py` decides which step is next.
"""
