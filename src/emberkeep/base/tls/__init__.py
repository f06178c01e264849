"""Encryption of the links between our processes: the cluster's certificates, and the contexts that use them."""
