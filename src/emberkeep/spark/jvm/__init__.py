"""The JVMs of drivers, executors and local ZooKeeper servers: configuration, command lines and class archives."""
