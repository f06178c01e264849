"""Processes that outlive their supervisor: started, found again, ended."""
