"""Show results in a Python session and in a notebook: short texts for `repr`, and HTML tables.

Start with `listing.py`, whose types are what the clients return.
"""
