"""The rules of consumer groups: members, generations and committed offsets. Pure. Start with `group.py`."""
