"""The listener for clients that speak Kafka's protocol, in front of the broker's handlers.

Start with `listener.py`, which owns the connections. `connection.py` moves frames; `translation/` maps messages.
"""
