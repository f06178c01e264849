"""The embedded job store, and the records and files that both kinds of job store use."""
