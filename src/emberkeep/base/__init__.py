"""What all other packages build on: ids, clock, randomness, configuration, errors, durable files, actors."""
