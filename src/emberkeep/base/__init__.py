"""What every other package stands on: ids, ports for time and chance, configuration, errors, durable files."""
