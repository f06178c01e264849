"""Commands that act on the cluster and its daemons."""
