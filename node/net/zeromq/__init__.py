"""The protocol between brokers, over ZeroMQ: `connection.py` sends requests, `router.py` receives them."""
