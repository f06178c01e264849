"""How the demonstration fails."""


class DemoFailed(Exception):
    """Something did not happen as it should have."""
