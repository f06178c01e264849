"""Named tokens: who may call a cluster, with which role, in which namespace, and until when."""
