"""Contract suites: one set of tests per port, run for every implementation of the port, including fakes."""
