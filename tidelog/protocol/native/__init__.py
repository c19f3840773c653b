"""The ZeroMQ transport: one connection of a client to a broker. Start with `connection.py`."""
