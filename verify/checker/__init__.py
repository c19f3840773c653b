"""The checker: decides from the histories of clients and brokers and from the final logs which invariants were
violated.

The checker queries no cluster, and its only clock is that of the histories.
"""
