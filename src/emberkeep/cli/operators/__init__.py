"""Commands for those who operate a cluster: what runs now, and what is wrong."""
