"""Commands about the cluster and its daemons."""
