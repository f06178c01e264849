"""State gateways in the level ``processes``: a job that stores through them, faults that strike them, a judgement."""
