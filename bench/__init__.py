"""Measurements: `make bench`. Each stands beside a peer or a limit of the same run, as a ratio with its range.

There is a room for each subject. What puts load on JobManagers for several of them is in ``load``.
"""
