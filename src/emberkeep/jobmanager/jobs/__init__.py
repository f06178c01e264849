"""The Dispatcher and what it works with."""
