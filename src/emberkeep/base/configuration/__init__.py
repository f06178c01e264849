"""Configuration options, the sources of their values, and the locations that they name."""
