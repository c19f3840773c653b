"""The brokers that hold the replicas of a partition: placement, reassignment and deletion of replicas.

Start with `placement.py`. `reassignment.py` lists the steps in which a partition moves to other brokers.
"""
