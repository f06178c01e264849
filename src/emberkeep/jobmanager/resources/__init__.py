"""The ResourceManager and its collaborators."""
