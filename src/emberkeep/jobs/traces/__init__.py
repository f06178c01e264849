"""How the start of an attempt went: when it reached which milestone."""
