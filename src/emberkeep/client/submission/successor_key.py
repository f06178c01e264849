"""The idempotency key of a job that follows another one of its name."""

from __future__ import annotations

import hashlib


def successor_key(kind: str, namespace: str, name: str, before: str) -> str:
    """Return the key under which the successor of job ``before`` is submitted; "" for the first job of the name.

    All clients that submit a successor of the same job use the same key, so it has one, whichever of them crash. Once
    that one has ended, its own successor has another key. ``kind``: what such jobs are, so that two kinds of jobs with
    one name have keys of their own.
    """
    identity = "\n".join((namespace, name, before))
    return f"{kind}-{hashlib.sha256(identity.encode()).hexdigest()}"
