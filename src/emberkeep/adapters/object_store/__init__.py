"""Clients of object stores, their locations, and the translation of their errors."""
