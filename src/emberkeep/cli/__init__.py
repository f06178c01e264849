"""The `emberkeep` command: arguments in, calls of the client, words and exit codes out."""
