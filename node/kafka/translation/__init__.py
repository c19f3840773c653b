"""The translations between Kafka's messages and the broker's typed requests, one file for each family of APIs.

`apis.py` lists what this broker offers. A translation decides nothing that the handlers decide.
"""
