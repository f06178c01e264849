"""Airflow provider for Emberkeep: run PySpark jobs on an Emberkeep cluster as tasks of a DAG.

Only `emberkeep.client` and what it needs is imported from the main distribution, so Airflow needs no PySpark.
"""
