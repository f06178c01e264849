"""JobManagers: what they decide, accept, store and show, and how one takes over from another."""
