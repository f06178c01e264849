"""Secrets of a job: values for environment variables of its driver and executors, stored and sent encrypted.

The JobManager seals them when it accepts the job, and a task manager opens them when it starts one of the job's
processes. The key is derived from the cluster's token, which both have. A sealed value belongs to one job and name, so
it cannot be put into another job's graph.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping

from emberkeep.base.derived_key import derived_key
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.ids import JobId

MOST_SECRETS = 50
LONGEST_SECRET = 32 * 1024  # bytes; Linux allows 128 KiB for one variable

_LABEL = b"emberkeep job secrets 1"
_NONCE_BYTES = 12
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_RESERVED = re.compile(r"(EMBERKEEP|SPARK|PYSPARK|PYTHON|JAVA|JDK|LD|DYLD)_.*|PYTHON.*|PATH|HOME|TMPDIR|HADOOP_TOKEN.*")


def check_secrets(secrets: Mapping[str, str]) -> None:
    """Raise InvalidInput if the secrets cannot be variables of a job. The message contains no value."""
    if len(secrets) > MOST_SECRETS:
        raise InvalidInput(f"{len(secrets)} secrets are more than the {MOST_SECRETS} allowed", field="secrets")
    for name, value in secrets.items():
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"{name[:80]!r} is not the name of a secret",
                field="secrets",
                hint="use letters, digits and _, not a digit first: it becomes an environment variable",
            )
        if _RESERVED.fullmatch(name):
            raise InvalidInput(
                f"a secret cannot be called {name}: this variable configures the job's processes",
                field="secrets",
                hint="choose another name",
            )
        if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in value):
            raise InvalidInput(f"the secret {name} contains a NUL, or is not UTF-8 text", field=f"secrets.{name}")
        if not 0 < len(value.encode()) <= LONGEST_SECRET:
            raise InvalidInput(
                f"the secret {name} has {len(value.encode())} bytes: 1 to {LONGEST_SECRET} are allowed",
                field=f"secrets.{name}",
            )


class JobSecrets:
    """Seals and opens secrets of jobs with AES-256-GCM."""

    def __init__(self, token: str, random_bytes: Callable[[int], bytes]) -> None:
        """``token``: the cluster's.

        ``random_bytes`` returns as many cryptographically random bytes as it is asked for.
        """
        self._random_bytes = random_bytes
        self._key = derived_key(token, _LABEL)

    def seal(self, job_id: JobId, secrets: Mapping[str, str]) -> dict[str, str]:
        """Return the encrypted values by name."""
        if not secrets:
            return {}
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        cipher, sealed = AESGCM(self._key), {}
        for name, value in secrets.items():
            nonce = self._random_bytes(_NONCE_BYTES)
            text = nonce + cipher.encrypt(nonce, value.encode(), _context(job_id, name))
            sealed[name] = base64.b64encode(text).decode()
        return sealed

    def open(self, job_id: JobId, sealed: Mapping[str, str]) -> dict[str, str]:
        """Return the values by name. Raises Fatal if one was not sealed for this job with this cluster's token."""
        if not sealed:
            return {}
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        cipher, values = AESGCM(self._key), {}
        for name, text in sealed.items():
            try:
                data = base64.b64decode(text, validate=True)
                opened = cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _context(job_id, name))
                values[name] = opened.decode()
            except (InvalidTag, ValueError, binascii.Error):
                raise Fatal(
                    f"cannot decrypt the secret {name[:128]!r} of job {job_id}",
                    hint="if the cluster's token has changed since the job was submitted, submit the job again",
                ) from None
        return values


def _context(job_id: JobId, name: str) -> bytes:
    return f"{job_id}/{name}".encode()
