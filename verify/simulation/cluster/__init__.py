"""The simulated cluster: production brokers on virtual time, a network, and the faults that are injected."""
