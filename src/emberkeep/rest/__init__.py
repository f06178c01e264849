"""The REST API: thin handlers over the JobManager's gateway, one route table for server, OpenAPI and reference."""
