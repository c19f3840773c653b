"""Benchmarks of many partitions, brokers, members, groups and connections. Start with `partitions.py`.

`partitions.py` and `many_groups.py` also measure Kafka, and are declared among the comparisons of
`tools/bench/kafka_clients`.
"""
