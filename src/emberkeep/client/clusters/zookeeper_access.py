"""Access of a local cluster to its own ZooKeeper: credentials, encryption, and the rule for records of release 0.1.0.

The credentials are in a file, which the daemons read: other users could read the arguments of a process.
"""

from __future__ import annotations

import contextlib
import secrets

from emberkeep.base.configuration.layout import StateLayout, TlsFiles
from emberkeep.base.configuration.options.high_availability import (
    ZOOKEEPER_AUTHORIZATION,
    ZOOKEEPER_AUTHORIZATION_FILE,
    ZOOKEEPER_RECORDS,
    ZOOKEEPER_SASL,
)
from emberkeep.base.configuration.options.job_managers import REST_ADDRESS, REST_BIND_ADDRESS
from emberkeep.base.configuration.options.security import ENCRYPTION, TLS_CA, TLS_CERTIFICATE, TLS_KEY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict
from emberkeep.base.files.durable import create_file
from emberkeep.base.files.private import make_private_durably
from emberkeep.client.endpoint import is_loopback

_OTHERS_CERTIFICATES = (TLS_CERTIFICATE, TLS_KEY, TLS_CA)
_OWN_KEYS = (ZOOKEEPER_AUTHORIZATION, ZOOKEEPER_AUTHORIZATION_FILE, ZOOKEEPER_SASL)


class ZooKeeperAccess:
    """Access to the servers whose data are in the ZooKeeper directory of ``layout``.

    Credentials that the user has configured are used instead of new ones. So is a configured rule for unsigned records.
    """

    def __init__(self, layout: StateLayout, configuration: Configuration) -> None:
        self._layout, self._configuration = layout, configuration
        self._directory = directory = layout.zookeeper
        self._file = directory / "login"
        self._unsigned = directory / "unsigned-records"  # exists until the records of release 0.1.0 are signed
        self._makes_login = not any(option.key in configuration.settings for option in _OWN_KEYS)
        self._has_rule = ZOOKEEPER_RECORDS.key in configuration.settings

    @property
    def is_of_older_release(self) -> bool:
        """True if a release that made no credentials has started this cluster."""
        return self._directory.is_dir() and not self._file.exists()

    def prepare(self) -> None:
        """Create random credentials, unless there are some. Call this only while no process of the cluster runs.

        Raises Fatal or Unavailable.
        """
        if self._file.exists():
            return
        make_private_durably(self._directory)
        if any(self._directory.iterdir()):
            self._unsigned.touch(mode=0o600)
        with contextlib.suppress(Conflict):
            create_file(self._file, f"digest:emberkeep:{secrets.token_urlsafe(24)}\n".encode())

    def tls(self) -> TlsFiles | None:
        """Return the files with which the servers encrypt; make what is missing of the cluster's own CA.

        None if the cluster does not encrypt, or if others issue its certificates. Blocks. Raises Fatal, InvalidInput.
        """
        configuration = self._configuration
        if configuration[ENCRYPTION] != "tls" or any(configuration[option] for option in _OTHERS_CERTIFICATES):
            return None
        from emberkeep.base.tls.authority import CertificateAuthority

        reached = (configuration[REST_ADDRESS], configuration[REST_BIND_ADDRESS])
        CertificateAuthority(self._layout.tls).ensure((), may_make_ca=all(map(is_loopback, reached)))
        return self._layout.tls_files

    def signed(self) -> None:
        """Record that a leader has signed all records."""
        self._unsigned.unlink(missing_ok=True)

    def settings(self, *, leads: bool) -> dict[str, str]:
        """Return the settings for a daemon. ``leads``: the daemon may become the leader."""
        found: dict[str, str] = {}
        if self._makes_login and self._file.exists():
            found[ZOOKEEPER_AUTHORIZATION_FILE.key] = str(self._file)
        if not self._has_rule and self.is_of_older_release:
            found[ZOOKEEPER_RECORDS.key] = "keep-unsigned"
        elif not self._has_rule and leads and self._unsigned.exists():
            found[ZOOKEEPER_RECORDS.key] = "sign"
        return found
