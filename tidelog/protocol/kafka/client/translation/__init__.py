"""How typed requests are written as Kafka's messages, and how Kafka's responses are read.

Start with `apis.py`. The other files have two functions for each API: one writes the request, one reads the response.
"""
