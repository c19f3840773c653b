"""The coordinator of consumer groups: what this broker leads of `__consumer_offsets`, it answers for."""
