"""ZooKeeper: sessions, the election, and the job store in it."""
