"""The JobManager's web pages: rendered on the server, escaped by the template engine, refreshed by small ES modules."""
