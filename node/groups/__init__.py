"""The coordinator of consumer groups: serves the groups of the `__consumer_offsets` partitions that this broker leads.

Start with `service.py`. The rules themselves are in `cluster/groups`.
"""
