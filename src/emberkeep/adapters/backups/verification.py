"""Checks a backup: every digest, every record, and that each job's files are there."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from emberkeep.adapters.backups.contents import StoreCopy
from emberkeep.adapters.backups.database_copy import read_database
from emberkeep.adapters.backups.job_files import decode_graph
from emberkeep.adapters.backups.names import MANIFEST, SEAL, blob_member
from emberkeep.adapters.backups.node_records import read_nodes
from emberkeep.adapters.backups.reading import BackupReader
from emberkeep.adapters.backups.seal import is_sealed
from emberkeep.backups.model import BackupDamaged, BackupManifest, Damage, Member, StoreKind, Verification
from emberkeep.base.errors import Absent, EmberkeepError, Fatal, NewerFormat


def verify(reader: BackupReader, token: str | None) -> Verification:
    """Check everything in the backup. ``token``: the cluster's; None if there is none here. Raises NewerFormat."""
    try:
        manifest, data, seal = reader.manifest()
    except BackupDamaged as error:
        return Verification(damages=(Damage(member=MANIFEST, what=error.message),))
    sealed = None if token is None else is_sealed(data, seal, token)
    damages = [*_bytes(reader, manifest), *_strangers(reader, manifest)]
    if not damages:
        damages += _content(reader, manifest)
    return Verification(damages=tuple(damages), manifest=manifest, sealed=sealed)


def _bytes(reader: BackupReader, manifest: BackupManifest) -> Iterator[Damage]:
    for member in manifest.members:
        try:
            found = reader.look_at(member.name)
        except Absent:
            yield Damage(member=member.name, what="is missing")
        except EmberkeepError as error:
            yield Damage(member=member.name, what=error.message)
        else:
            if found != member:
                yield Damage(member=member.name, what=_difference(member, found))


def _difference(wanted: Member, found: Member) -> str:
    if wanted.size != found.size:
        return f"has {found.size} bytes, not the {wanted.size} that were written"
    return "differs from what was written (its SHA-256 is another)"


def _strangers(reader: BackupReader, manifest: BackupManifest) -> Iterator[Damage]:
    known = {MANIFEST, SEAL, *(member.name for member in manifest.members)}
    for name in sorted(reader.names() - known):
        yield Damage(member=name, what="does not belong to this backup")


def _content(reader: BackupReader, manifest: BackupManifest) -> Iterator[Damage]:
    """Check that members fit together. Their bytes are as they were written."""
    present = {member.name: member for member in manifest.members}
    try:
        with records_in(reader, manifest):
            pass
    except NewerFormat:
        raise
    except Fatal as error:
        yield Damage(member=manifest.records, what=error.message)
    for job in manifest.jobs:
        if job.graph:
            try:
                graph = decode_graph(reader.read(job.graph), job.graph)
                if graph.job_id != job.job_id:
                    yield Damage(member=job.graph, what=f"is the graph of job {graph.job_id}, not of {job.job_id}")
            except NewerFormat:
                raise
            except (Fatal, Absent) as error:
                yield Damage(member=job.graph, what=error.message)
    for blob in manifest.blobs:
        member = present.get(blob_member(blob.sha256))
        if member is None or member.sha256 != blob.sha256:
            yield Damage(member=blob_member(blob.sha256), what=f"is not the file that job {blob.job_id} needs")


@contextlib.contextmanager
def records_in(reader: BackupReader, manifest: BackupManifest) -> Iterator[StoreCopy]:
    """Provide the records of the job store in a backup. Raises Damaged, NewerFormat, Fatal."""
    if manifest.store is StoreKind.ZOOKEEPER:
        yield read_nodes(reader.read(manifest.records), where=manifest.records).copied()
        return
    member = next((each for each in manifest.members if each.name == manifest.records), None)
    if member is None:
        raise BackupDamaged(f"{reader.path}: the manifest lists no {manifest.records}")
    with tempfile.TemporaryDirectory(prefix="emberkeep-backup-") as place:
        path = Path(place) / "jobs.sqlite"
        reader.extract(member, path)
        yield read_database(path)
