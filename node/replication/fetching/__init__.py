"""Fetch records as a follower: one fetch loop for each leader broker. Start with `replica_fetcher.py`."""
