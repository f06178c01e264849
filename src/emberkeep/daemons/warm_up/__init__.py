"""The process that warms a standby JVM."""
