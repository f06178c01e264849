"""The part of the WebHDFS protocol through which Spark reaches the state gateway."""
