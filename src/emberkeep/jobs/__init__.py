"""Jobs: what was submitted, the states it passes through, restarts and results. Pure: no I/O, clock or randomness."""
