"""The attempts of one job and their drivers: parts of the job's state machine."""
