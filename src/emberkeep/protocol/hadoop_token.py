"""A state gateway's credential in the form in which Hadoop's WebHDFS client carries it: a delegation token.

Hadoop reads tokens from the variable HADOOP_TOKEN of its process (comma-separated; ``UserGroupInformation`` of Hadoop
3.5), Spark hands them on to the user that an executor runs as, and the client sends the one that fits the file system
as the parameter ``delegation`` of each request, in the place of ``user.name``. So the user's name stays what it is.

A token is four length-prefixed fields (identifier, password, kind, service) in URL-safe Base64 without padding. The
credential is the password: the identifier shows in Hadoop's logs, and is empty.
"""

from __future__ import annotations

import base64
import binascii

from emberkeep.base.errors import InvalidInput

TOKENS_VARIABLE = "HADOOP_TOKEN"
KIND = "WEBHDFS delegation"
# What the client takes webhdfs://localhost for: by address, or by name (hadoop.security.token.service.use_ip=false).
# The port is the one that a WebHDFS address without any has, whatever the gateway's is.
SERVICES = ("127.0.0.1:9870", "localhost:9870")
_LONGEST = 4096  # characters; a token of ours has about 120


def with_credential(tokens: str, credential: str) -> str:
    """The value of HADOOP_TOKEN that adds the credential to the ``tokens`` that are there ("" for none)."""
    return ",".join((*filter(None, [tokens]), *(encode(credential, service) for service in SERVICES)))


def encode(credential: str, service: str) -> str:
    """One token, as Hadoop's ``Token.encodeToUrlString`` writes it."""
    fields = (b"", credential.encode(), KIND.encode(), service.encode())
    return base64.urlsafe_b64encode(b"".join(_length(len(field)) + field for field in fields)).decode().rstrip("=")


def decode(token: str) -> str:
    """The credential in a token. Raises InvalidInput for anything that ``encode`` does not write."""
    try:
        if len(token) > _LONGEST:
            raise ValueError("too long")  # noqa: TRY301 - one message for all
        text = token.rstrip("=")
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        _, rest = _field(data)
        password, rest = _field(rest)
        kind, _ = _field(rest)
        if kind != KIND.encode():
            raise ValueError(f"its kind is {kind!r}")  # noqa: TRY301
        return password.decode()
    except (ValueError, binascii.Error) as error:
        raise InvalidInput(f"not a token of a state gateway: {error}") from None


def _length(number: int) -> bytes:
    """Hadoop's variable-length integer, for 0 to 65535."""
    if number <= 127:
        return bytes([number])
    return bytes([0x8F, number]) if number <= 0xFF else bytes([0x8E, *number.to_bytes(2, "big")])


def _field(data: bytes) -> tuple[bytes, bytes]:
    """The first field, and what follows it. Raises ValueError."""
    if not data:
        raise ValueError("it ends early")
    first, width = data[0], 0
    if first > 127:
        width = {0x8F: 1, 0x8E: 2}.get(first, 0)
        if width == 0 or len(data) < 1 + width:
            raise ValueError("a length is wrong")
    length = int.from_bytes(data[1 : 1 + width], "big") if width else first
    start = 1 + width
    if len(data) < start + length:
        raise ValueError("it ends early")
    return data[start : start + length], data[start + length :]
