"""Foundation of all REST resources: routes, bodies, bounds."""
