"""The reliability lab: plays random histories, shrinks those that fail, and reports what was tried. See
docs/reliability-lab.md."""
