"""The web page of the JobManager: server-rendered, escaped by the template engine, kept fresh by small ES modules."""
