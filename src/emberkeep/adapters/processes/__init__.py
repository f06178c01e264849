"""Start processes that outlive their supervisor, find them again, and stop them."""
