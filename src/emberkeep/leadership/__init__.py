"""Leadership: what a JobManager may do, given what it knows of its ZooKeeper session, its latch and its epoch."""
