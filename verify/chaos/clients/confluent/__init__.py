"""Chaos clients that use confluent-kafka (librdkafka), an unmodified Kafka client, over the brokers' Kafka listeners.

`client_factory.py` creates these clients: chaos clients of the same classes as ours, on top of `ConfluentProducer` and
`ConfluentConsumer`. So their histories have the same form, and the same invariants apply.
"""
