"""What a RestClient can call, one module for each resource of the REST API."""
