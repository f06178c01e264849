"""Commands for the ways into Spark other than a script: pipelines and Spark Connect."""
