"""What is wrong with a cluster or with the machine for one: facts that were looked at, and what follows from them."""
