"""The events that brokers and clients record, and their files, which the checker reads. Start with `events.py`."""
