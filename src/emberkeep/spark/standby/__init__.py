"""Standby JVMs: started and warmed before a job needs them, then given the job's identity."""
