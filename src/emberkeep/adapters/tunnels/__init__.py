"""Tunnels to the Spark Connect servers of drivers, see `base.tunnels`."""
