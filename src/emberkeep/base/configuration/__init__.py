"""Configuration options, the sources of their values, and the places that they name."""
