"""What listing and info commands show: once, or again whenever it has changed."""
