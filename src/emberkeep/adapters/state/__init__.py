"""State files: local copies on a node, and the durable stores behind them."""
