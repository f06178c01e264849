"""Resource drivers for tests, and what platforms look like to them."""
