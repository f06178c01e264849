"""A driver's certificate for tests of functions on executors."""

from __future__ import annotations

from pathlib import Path

from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.files.durable import write_file
from emberkeep.base.tls.seeded_certificate import seeded_certificate
from emberkeep.spark.functions.encryption import LinkEncryption, link_encryption


def encryption_in(directory: Path, seed: bytes = b"1" * 32) -> LinkEncryption:
    """The encryption with the certificate that belongs to ``seed``; its file is in ``directory``."""
    path = directory / f"{seed.hex()[:8]}.pem"
    write_file(path, seeded_certificate(seed).pem)
    found = link_encryption(TlsFiles(str(path), str(path), ""))
    assert found is not None
    return found
