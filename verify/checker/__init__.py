"""The checker: reads what clients and brokers wrote down, and what the replicas hold in the end; says what was broken.

It is pure: it asks no cluster, and its own clock is that of the histories.
"""
