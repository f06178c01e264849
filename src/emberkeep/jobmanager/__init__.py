"""The actors of a JobManager: Dispatcher, ResourceManager, blocklist and BLOB server, and its part in the election."""
