"""The command that upgrades jobs."""
