"""ZooKeeper: sessions, leader election, and the job store."""
