"""Callers whose tokens an OpenID Connect issuer signs."""
