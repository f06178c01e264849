"""How much one caller may use, so that its load does not take the cluster away from the others. Pure."""
