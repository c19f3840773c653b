"""The requests and responses of brokers and clients, and their encoding.

Start with `messages.py`. Brokers send these messages over ZeroMQ (`node/net/zeromq/`), and clients as messages of Kafka
(`kafka/client/`).
"""
