"""Input and output of the commands on a terminal: tables, times, progress and interrupts."""
