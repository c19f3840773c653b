"""Consumer groups as clients see them: membership, assignment, committed offsets and lag.

Start with `membership/group_consumer.py`. `offsets_topic.py` has the records of `__consumer_offsets`.
"""
