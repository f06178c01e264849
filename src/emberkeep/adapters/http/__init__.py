"""HTTP servers, RPC over HTTP, and the access checks of both."""
