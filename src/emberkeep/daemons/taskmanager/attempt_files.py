"""The credentials that a task manager hands to a driver: files in the directory of the driver's attempt.

A driver gets no other credentials of the cluster: neither its token nor the key of the node's certificate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.files.durable import write_file
from emberkeep.base.identity import AttemptScope
from emberkeep.base.tls.seeded_certificate import seeded_certificate
from emberkeep.identities.attempts import AttemptCredentials

TOKEN_FILE: Final = "token"  # noqa: S105 - a file's name
CERTIFICATE_FILE: Final = "driver.pem"
CA_FILE: Final = "ca.pem"


def write_attempt_files(
    directory: Path, scope: AttemptScope, credentials: AttemptCredentials, node: TlsFiles
) -> tuple[Path, TlsFiles]:
    """Write the credentials of an attempt's driver to ``directory`` (mode 0700).

    Return the file with its token, and its TLS files. Of ``node``, the files of this node, the driver gets only the
    CAs, as a copy: it need not be able to read the node's own files. Blocks. Raises Fatal, OSError.
    """
    token, certificate, ca = (directory / name for name in (TOKEN_FILE, CERTIFICATE_FILE, CA_FILE))
    write_file(token, f"{credentials.token(scope)}\n".encode())
    write_file(certificate, seeded_certificate(credentials.certificate_seed(scope)).pem)
    write_file(ca, Path(node.ca).read_bytes())
    return token, TlsFiles(certificate=str(certificate), key=str(certificate), ca=str(ca))
