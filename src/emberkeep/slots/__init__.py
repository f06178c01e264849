"""Slots: what task managers offer, what jobs need, and which job gets which slot. Pure: no I/O, clock or randomness."""
