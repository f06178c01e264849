"""The place of the HA store: who owns it, and whether it is available."""
