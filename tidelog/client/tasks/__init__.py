"""The background tasks of a client: their start, their failures, the events that they wait for, and their end.

Start with `background.py`.
"""
