"""The fetch loops of a follower, one for each leader broker. Start with `replica_fetcher.py`."""
