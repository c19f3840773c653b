"""Tests of clients in other languages: groups, AdminClients, Kafka's shell tools, Kafka Streams, Spark.

All are `slow`. Start with `program_reader.py`. `../adapters/client_program.py` says how a test talks with a client.
"""
