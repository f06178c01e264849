"""Options, where their values come from, and the places that they name."""
