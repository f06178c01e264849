"""The state gateway's credential in the form that Hadoop's WebHDFS client carries: a delegation token.

Hadoop reads tokens from its process's variable HADOOP_TOKEN (comma-separated; ``UserGroupInformation`` of Hadoop 3.5).
Spark passes them on to the user that an executor runs as. The client sends the token that fits the file system with
each request, as the parameter ``delegation`` in place of ``user.name``. Unlike a credential in the user's name, a token
leaves that name unchanged.

A token is four length-prefixed fields (identifier, password, kind, service) in URL-safe Base64 without padding. The
credential is the password. The identifier is empty, because Hadoop writes it to its logs.
"""

from __future__ import annotations

import base64
import binascii

from emberkeep.base.errors import InvalidInput

TOKENS_VARIABLE = "HADOOP_TOKEN"
KIND, ENCRYPTED_KIND = "WEBHDFS delegation", "SWEBHDFS delegation"
# The client's service names for webhdfs://localhost and swebhdfs://localhost: by address, or by name if
# hadoop.security.token.service.use_ip=false. An address without a port means these, whatever the gateway's port is.
_PORTS = {KIND: 9870, ENCRYPTED_KIND: 9871}
_HOSTS = ("127.0.0.1", "localhost")
_LONGEST = 4096  # characters; one of our tokens has about 120


def with_credential(tokens: str, credential: str, kind: str) -> str:
    """Return the value of HADOOP_TOKEN that adds the credential to the existing ``tokens`` ("" for none)."""
    added = (encode(credential, kind, f"{host}:{_PORTS[kind]}") for host in _HOSTS)
    return ",".join((*filter(None, [tokens]), *added))


def encode(credential: str, kind: str, service: str) -> str:
    """Return one token, as Hadoop's ``Token.encodeToUrlString`` writes it."""
    fields = (b"", credential.encode(), kind.encode(), service.encode())
    return base64.urlsafe_b64encode(b"".join(_length(len(field)) + field for field in fields)).decode().rstrip("=")


def decode(token: str) -> str:
    """Return the credential in a token. Raises InvalidInput for anything that ``encode`` does not write."""
    try:
        if len(token) > _LONGEST:
            raise ValueError("too long")  # noqa: TRY301 - one message for all
        text = token.rstrip("=")
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        _, rest = _field(data)
        password, rest = _field(rest)
        kind, _ = _field(rest)
        if kind.decode() not in _PORTS:
            raise ValueError(f"its kind is {kind!r}")  # noqa: TRY301
        return password.decode()
    except (ValueError, binascii.Error) as error:
        raise InvalidInput(f"not a token of a state gateway: {error}") from None


def _length(number: int) -> bytes:
    """Encode a number from 0 to 65535 as Hadoop's variable-length integer."""
    if number <= 127:
        return bytes([number])
    return bytes([0x8F, number]) if number <= 0xFF else bytes([0x8E, *number.to_bytes(2, "big")])


def _field(data: bytes) -> tuple[bytes, bytes]:
    """Return the first field of ``data`` and the bytes after that field. Raises ValueError."""
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
