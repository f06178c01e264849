"""Run the user's script in the driver process."""
