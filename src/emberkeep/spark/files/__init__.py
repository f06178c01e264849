"""Files as Spark's driver reaches them."""
