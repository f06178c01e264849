"""The user's functions, in the driver and on executors."""
