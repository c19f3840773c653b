"""The producer: batches of records, their sending, and the futures of records.

Start with `accumulator.py` (records waiting for a batch), then `sender.py`.
"""
