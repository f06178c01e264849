"""What a leader's actors note in the chronicle."""
