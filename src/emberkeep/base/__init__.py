"""Foundation of all other packages: ids, clock, randomness, configuration, errors, durable files, actors."""
