"""Helpers for the event loop and the process, independent of replication and groups. Each file is one helper."""
