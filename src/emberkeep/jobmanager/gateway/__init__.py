"""What the edges can ask of the leader: a module for each subject, and the gateway that has them all."""
