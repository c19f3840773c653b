"""The client side of Kafka's protocol: one TCP connection to one broker, over which typed requests are sent.

Start with `connection.py`. `translation` says how each typed request is written as a Kafka message.
"""
