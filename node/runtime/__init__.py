"""Parts of the event loop and of the process that know nothing of replication or groups."""
