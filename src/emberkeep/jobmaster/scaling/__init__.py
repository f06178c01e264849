"""How many executors an application has, where the number changes: what is wanted is read, or decided by load."""
