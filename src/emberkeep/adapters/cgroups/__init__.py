"""Control groups: what the kernel lets a driver or an executor have, with all that it starts."""
