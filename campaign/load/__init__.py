"""Load beside faults: many clients, a fuzzer and large uploads while leaders die."""
