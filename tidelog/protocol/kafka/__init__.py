"""Kafka's protocol: its messages in all supported versions, and their encoding. Only `client/` does input and output.

Start with `schema.py`, which says how a message class describes its wire format, and with `codec.py`, which encodes and
decodes messages. `apis.py` lists the APIs, `messages/` has their classes, and `headers.py` makes and reads frames.
`client/` is the client's side, which connects to brokers.
"""
