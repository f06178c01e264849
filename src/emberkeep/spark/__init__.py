"""Everything that touches PySpark or Spark's internals. PySpark is imported only here, and only when it is needed."""
