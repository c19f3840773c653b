"""Shows failover on real log lines: `scripts/demo`.

Three brokers receive this machine's log lines, a Spark job counts them, a leader is killed meanwhile, and an audit
shows that no acknowledged record was lost. Start with `scenario.py`.
"""
