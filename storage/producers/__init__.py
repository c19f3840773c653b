"""The state of idempotent producers in one log, and its snapshots on disk. Start with `producer_state.py`."""
