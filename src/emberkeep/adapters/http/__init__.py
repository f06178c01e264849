"""HTTP servers, RPC over HTTP, and who may speak to them."""
