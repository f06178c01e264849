"""The ResourceManager and what it works with."""
