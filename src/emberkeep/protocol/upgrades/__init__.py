"""REST bodies about upgrades."""
