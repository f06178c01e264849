"""BLOBs: immutable byte strings that belong to jobs. Keys, reference counts, staged clean-up; no I/O."""
