"""The requests of administrators and their results. Start with `admin.py`."""
