"""What ``emberkeep doctor`` looks at. Probes report facts, errors included; the domain ``diagnosis`` judges them."""
