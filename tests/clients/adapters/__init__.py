"""One adapter for each unmodified foreign client, all behind `ForeignClient`.

Start with `foreign_client.py`. `registry.py` lists the clients, and says which of them this machine has.
"""
