"""The REST API: thin handlers over the JobManager's gateway. One route table feeds server, OpenAPI and reference."""
