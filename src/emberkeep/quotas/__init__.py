"""How much one caller may use, so that its load does not keep the others from using the cluster. Pure."""
