"""Parts that several faults share: their base class, namespaces, packet filters and how a bite is detected."""
