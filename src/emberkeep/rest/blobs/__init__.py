"""BLOBs over REST."""
