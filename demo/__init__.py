"""`make demo`: real data on a local cluster; parts of it are killed in mid-run; the result is compared row by row."""
