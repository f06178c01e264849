"""BLOBs on disks, in object stores and over HTTP."""
