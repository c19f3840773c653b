"""Checks brokers' files with Kafka's dump tool: `scripts/check`.

Uses only the standard library, so that any Python runs it. Start with `judge.py`.
"""
