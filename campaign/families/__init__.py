"""What is special to the worlds of one family."""
