"""The `emberkeep` command: parse arguments, call the client, print results, return exit codes."""
