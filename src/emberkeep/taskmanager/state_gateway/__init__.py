"""The state gateway: a job's state files as its processes on this node see them."""
