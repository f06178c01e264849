"""Slots: what task managers offer, what jobs need, and who gets what. Pure: no I/O, clock or randomness."""
