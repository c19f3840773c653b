"""Measures clusters through one unmodified Kafka client, confluent-kafka: Tidelog, a real Kafka, and a mock cluster.

Each measurement takes a `Target` and does not know which cluster that is. librdkafka's mock cluster answers at once and
replicates nothing, so that its figures are the client's own ceiling. Start with `comparisons.py`.
"""
