"""Certificates for tests: a cluster's CA in a directory, and what it proves."""

from __future__ import annotations

from pathlib import Path

from emberkeep.base.configuration.layout import CA_FILE, NODE_FILE, TlsFiles
from emberkeep.base.tls.authority import Authority
from emberkeep.base.tls.links import TlsLinks


def files_in(directory: Path) -> TlsFiles:
    node = str(directory / NODE_FILE)
    return TlsFiles(node, node, str(directory / CA_FILE))


def cluster_tls(directory: Path, *hosts: str) -> TlsLinks:
    """TLS of a node of the cluster whose CA is in ``directory``, made if needed."""
    Authority(directory).ensure(hosts)
    return TlsLinks(files_in(directory))


def bundle_tls(directory: Path, target: Path, *hosts: str) -> TlsLinks:
    """TLS of another node of that cluster."""
    Authority(directory).bundle(target, hosts)
    return TlsLinks(files_in(target))
