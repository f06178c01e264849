"""Files of jobs that task managers fetch, from JobManagers and from each other, and faults in the middle of that."""
