"""Adapters: what fulfils the ports by means of the operating system, HTTP, SQLite and files."""
