"""A cluster of brokers, its clients, disks and network in one process, on virtual time, from a seed."""
