"""The driver process of one attempt: ``python -m emberkeep.daemons.driver <spec>``."""
