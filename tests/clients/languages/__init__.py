"""Tests of clients in other languages: AdminClients and Kafka's shell tools. All are `slow`.

Start with `program_reader.py`. `../adapters/client_program.py` says how a test talks with such a client.
"""
