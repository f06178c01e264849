"""How this cluster proves itself to ZooKeeper, and ZooKeeper's records to this cluster."""
