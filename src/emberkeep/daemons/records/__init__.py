"""Files by which daemons hand things to each other and to their next lives."""
