"""Contract suites: one set of tests per port, run for every implementation of it, fakes included."""
