"""The metrics of the clients. `client_metrics.py` counts, and `snapshot.py` names what users get from `metrics()`."""
