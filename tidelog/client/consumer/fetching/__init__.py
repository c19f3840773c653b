"""The fetching of assigned partitions, from the look-up of a position to the buffered records.

Start with `position_state.py` (states and transitions), then `fetch_plan.py` (which request a partition needs next).
"""
