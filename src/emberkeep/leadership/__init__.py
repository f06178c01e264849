"""Leadership: what a JobManager may do, given the state of its ZooKeeper session, its latch and its epoch."""
