"""The level ``processes`` of a campaign: real JobManagers, ZooKeeper and task managers; jobs without Spark; faults."""
