"""Runs the same measurements against a real Kafka."""
