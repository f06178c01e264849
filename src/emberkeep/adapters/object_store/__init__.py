"""Clients of object stores, and what their errors mean."""
