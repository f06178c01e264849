"""What tests of this project and of its users run on: fakes, contract suites, the simulator."""
