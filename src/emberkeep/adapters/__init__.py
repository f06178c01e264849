"""Adapters: implementations of the ports, with files, SQLite, ZooKeeper, object stores, HTTP and processes."""
