"""From a command line to a submitted job."""
