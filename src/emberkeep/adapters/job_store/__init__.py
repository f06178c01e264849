"""The embedded job store, and the files that belong to job stores of either kind."""
