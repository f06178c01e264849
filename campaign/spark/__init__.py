"""The level ``spark``: streams and batch jobs of real PySpark under faults, compared with an oracle row by row."""
