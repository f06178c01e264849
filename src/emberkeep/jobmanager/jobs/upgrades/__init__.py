"""Upgrades of jobs to new code: what their state machines decide is carried out here."""
