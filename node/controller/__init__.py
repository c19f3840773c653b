"""The controller on this broker: election of the controller, requests to brokers, commands of administrators.

Start with `controller_elector.py`, then `controller_term.py`. The rules themselves are in `cluster/controller`.
"""
