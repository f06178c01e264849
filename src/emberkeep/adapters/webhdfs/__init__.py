"""The part of WebHDFS through which Spark reaches the state gateway."""
