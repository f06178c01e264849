"""The actors of a JobManager: Dispatcher and ResourceManager."""
