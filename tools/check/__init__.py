"""Kafka's dump tool as a judge of our files."""
