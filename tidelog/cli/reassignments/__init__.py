"""`tidelog topic reassign`: moves replicas to other brokers. Start with `reassign.py`, which has the command."""
