"""Messages between processes, REST schemas, and the limits of both."""
