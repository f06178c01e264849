"""How the rolling file sink writes: a commit log, pieces that wait, part files that become visible whole."""
