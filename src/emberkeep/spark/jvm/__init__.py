"""The JVMs of drivers and executors: their configuration, command lines and class archives."""
