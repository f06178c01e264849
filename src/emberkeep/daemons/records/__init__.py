"""Files that daemons hand to each other and to their next processes."""
