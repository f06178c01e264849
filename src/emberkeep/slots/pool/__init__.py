"""The slots of one attempt of a job."""
