"""The segments of a log: batches, offset index and time index. Start with `segment.py`."""
