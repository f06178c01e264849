"""Installs Emberkeep as a service of the operating system."""
