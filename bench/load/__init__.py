"""What puts load on JobManagers in measurements: requests over HTTP, submissions, and nodes and jobs that are stubs."""
