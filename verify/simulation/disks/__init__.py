"""Simulated disks that lose unsynced bytes, fail, and forget."""
