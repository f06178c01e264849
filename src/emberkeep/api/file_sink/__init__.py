"""How the rolling file sink writes: a commit log, waiting pieces, and part files that become visible complete."""
