"""Judges what ``emberkeep doctor`` has seen of a machine and a cluster: facts in, findings out."""
