"""What all REST resources stand on: routes, bodies, bounds."""
