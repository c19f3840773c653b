"""Chaos clients that use confluent-kafka (librdkafka), an unmodified Kafka client, over the brokers' Kafka listeners.

`client_factory.py` creates them. They are the same chaos clients as ours, on top of `ConfluentProducer` and
`ConfluentConsumer`, so that their histories have the same form and the same invariants apply.
"""
