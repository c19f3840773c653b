"""Processes of the local cluster: start, stop, placement, ports and logs. Start with `process.py`."""
