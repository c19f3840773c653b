"""The sockets of a broker: ZeroMQ for requests, HTTP for health and metrics. Start with `server.py`.

`identity.py` opens connections to other brokers.
"""
