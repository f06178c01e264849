"""BLOBs: immutable byte strings that belong to jobs. Keys, reference counts and staged clean-up; no I/O."""
