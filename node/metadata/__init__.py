"""The knowledge of a broker about the topics of its cluster.

Start with `metadata_cache.py`, which the controller keeps up to date. `internal_topics.py` has the rules that protect
`__consumer_offsets`.
"""
