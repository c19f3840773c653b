"""The requests and responses of brokers and clients, and their encoding.

Start with `messages.py`. `native/` sends them over ZeroMQ.
"""
