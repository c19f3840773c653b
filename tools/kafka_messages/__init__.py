"""Generates the message classes in `tidelog/protocol/kafka/messages/` from Kafka's message definitions.

Run `python -m tools.kafka_messages DIRECTORY`, where the directory has Kafka's files such as FetchRequest.json. Start
with `families.py`, which says which APIs, versions and files are generated.
"""
