"""Simulate disks that lose unsynced bytes, fail, and damage stored bytes."""
