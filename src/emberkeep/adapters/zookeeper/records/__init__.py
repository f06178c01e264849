"""The records of a job store in ZooKeeper: one module for each kind of record."""
