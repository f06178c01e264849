"""Pages about the cluster as a whole: its BLOBs and its leaders."""
