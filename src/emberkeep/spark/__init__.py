"""All code that uses PySpark or Spark's internals. Functions import PySpark only when they need it."""
