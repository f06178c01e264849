"""State files of jobs on the node's own disk: what is kept, for whom, and for how long."""
