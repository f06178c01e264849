"""Measurements: `make bench`. Each stands beside a peer or a limit of the same run, as a ratio with its range."""
