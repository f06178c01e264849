"""What the client prepares for the ways into Spark other than a script: pipelines and Spark Connect."""
