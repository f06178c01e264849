"""What all REST resources share: routes, bodies, bounds."""
