"""What is noticed about jobs beside their states, and the notifications about both."""
