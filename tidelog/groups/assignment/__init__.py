"""The assignment of partitions to the members of a group. Start with `assignors.py`."""
