"""What a history of a cluster under faults may not show: pure judges, which read no clock and ask no broker."""
