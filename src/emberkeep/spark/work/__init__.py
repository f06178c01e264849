"""What Spark's scheduler does and has done, from Spark's own status store."""
