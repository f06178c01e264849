"""State files of jobs on the node's own disk: which copies are kept, for which allocation, and for how long."""
