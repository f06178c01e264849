"""The place where BLOBs lie for recovery, and whose it is."""
