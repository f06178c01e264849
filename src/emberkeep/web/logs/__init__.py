"""Pages of logs."""
