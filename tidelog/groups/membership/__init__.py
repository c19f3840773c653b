"""The membership of one consumer in its group.

Start with `group_consumer.py`. `membership_state.py` holds the rules and is pure; `heartbeat_member.py` does the I/O.
"""
