"""A cluster on this machine: an embedded ZooKeeper and broker processes that outlive the command that started them."""
