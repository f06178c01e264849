"""How processes learn of the leader without a ZooKeeper session: from a file, or from other processes."""
