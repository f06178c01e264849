"""The implementation of the rolling file sink: a commit log, waiting pieces, and part files."""
