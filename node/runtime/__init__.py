"""Helpers for the event loop, independent of replication and groups. Each file is one helper."""
