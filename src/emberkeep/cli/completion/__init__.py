"""What a shell completes by asking the cluster."""
