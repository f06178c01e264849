"""How this cluster authenticates to ZooKeeper, and how it verifies ZooKeeper's records."""
