"""The Dispatcher and its collaborators."""
