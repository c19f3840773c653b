"""The local cluster of `tidelog up`: its processes, its ZooKeeper and its directories. Start with `cluster.py`."""
