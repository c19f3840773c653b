"""Define the events that brokers and clients record, and the files for the checker. Start with `events.py`."""
