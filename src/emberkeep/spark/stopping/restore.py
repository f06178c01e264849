"""Start a job's queries from a savepoint: restore each checkpoint once, before its query starts for the first time.

A record in the checkpoint's directory names the savepoint that it was restored from. With this record, later attempts
of the job continue from the checkpoint and no longer need the savepoint. The record is written before the first file
and again after the last. A restore that a crash left half done is removed and repeated, because no batch can have run.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Unavailable
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.base.files.errors import cannot_read, read_if_there
from emberkeep.base.ids import JobId
from emberkeep.lifecycle.errors import SavepointDamaged
from emberkeep.lifecycle.manifest import (
    DELETING_NAME,
    MANIFEST_NAME,
    Manifest,
    QuerySavepoint,
    SavepointFile,
    decode_manifest,
    described,
    manifest_sha256,
    query_directory,
)
from emberkeep.lifecycle.spark_versions import judge
from emberkeep.spark.availability import wait_until_available
from emberkeep.spark.distribution import spark_version
from emberkeep.spark.errors import RestoreRefused
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.functions.states import FunctionStates, KeptStates
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries import checkpoint_logs as logs
from emberkeep.spark.queries.script_queries import ScriptQuery
from emberkeep.spark.stopping.drain import log_state
from emberkeep.spark.stopping.file_sink import check_file_sink
from emberkeep.spark.stopping.many_files import work_through
from emberkeep.spark.stopping.savepoint_storage import SavepointStorage, SavepointStorages

log = structlog.get_logger(__name__)

RECORD_KIND, RECORD_VERSION = "restored-checkpoint", 1
_RECORD = "_emberkeep_restored"
_PARTS = ("metadata", "offsets", "commits", "sources", "state")  # only these and the record are ever removed


class RestoredCheckpoint(Compatible, frozen=True, kw_only=True):
    """Record in a checkpoint's directory about its restore. Persisted (kind "restored-checkpoint", version 1)."""

    job_id: JobId  # the job that the checkpoint was restored for
    manifest_sha256: str
    key: str  # key of the query in the savepoint; "" if the savepoint did not contain the query, which started empty
    complete: bool


class Restore:
    """Restores the job's queries, one at a time. One instance per process.

    ``savepoint``: location of the savepoint that the job starts from; "" for none. ``may_commit``: returns once this
    attempt may write.
    """

    def __init__(
        self,
        savepoint: str,
        job_id: JobId,
        storages: SavepointStorages,
        states: FunctionStates,
        may_commit: Callable[[], None],
        notices: Notices,
    ) -> None:
        self._savepoint = savepoint.rstrip("/")
        self._job_id = job_id
        self._storages = storages
        self._states = states
        self._may_commit = may_commit
        self._notices = notices
        self._manifest: tuple[Manifest, str] | None = None
        self._verified = False
        self._taken: dict[str, str] = {}  # by key in the savepoint: the key of the script's query that uses it

    def function_states(self, session: Any) -> Mapping[str, bytes]:
        """Return the states that functions start with, by instance; empty if no states exist.

        In the first attempt these are the states in the savepoint. A later attempt uses the newest kept states. Each is
        what ``snapshot_state`` had returned. Raises SavepointDamaged, RestoreRefused, Fatal (NewerFormat: a newer
        Emberkeep made the savepoint).
        """
        return self._states.begin_with(session, lambda: self._states_in_savepoint(session))

    def _states_in_savepoint(self, session: Any) -> KeptStates | None:
        if not self._savepoint:
            return None
        files = HadoopFiles(session)
        storage = self._storages.at(self._savepoint, files)
        manifest, _ = self._read(storage, files)
        known = {file.path: file for file in manifest.files}
        states = {}
        for each in manifest.functions:
            try:
                data = storage.read(each.path)
            except Absent as error:
                raise self._missing(each.path) from error
            self._compare(known[each.path], described(each.path, data))
            states[each.name] = data
        return KeptStates(job_id=self._job_id, savepoint=self._savepoint, created_ms=manifest.created_ms, states=states)

    def prepare(self, query: ScriptQuery) -> None:
        """Restore the query's checkpoint before it starts, unless an earlier start of this job has done so.

        Raises RestoreRefused, SavepointDamaged: the script's ``start`` raises them.
        """
        if not self._savepoint:
            return
        if query.reached is None:
            self._notices.say(f"{query} cannot recover: it starts from nothing, not from the savepoint")
            return
        files = HadoopFiles(query.session)
        location = query.reached.rstrip("/")
        record = self._record(files, location)
        if record is not None and record.complete and record.job_id == self._job_id:
            self._taken[record.key] = query.key
            return  # an earlier start of this job restored it; the savepoint may have been removed since
        storage = self._storages.at(self._savepoint, files)
        manifest, digest = self._read(storage, files)
        saved = self._choose(manifest, query)
        key = "" if saved is None else saved.key
        done = RestoredCheckpoint(job_id=self._job_id, manifest_sha256=digest, key=key, complete=True)
        stands = False
        if record is not None and not record.complete:
            self._remove_half_done(files, query, location, record)
        elif saved is not None:
            stands = self._stands_at(files, query, location, saved)
        self.function_states(query.session)  # keeps the states for later attempts, when the savepoint may be gone
        if saved is not None and not stands:
            check_file_sink(files, query, saved)
            self._verify(storage, manifest)
            self._put(files, storage, location, manifest.files_of(saved), done)
            self._notices.say(f"{query} starts from the savepoint {self._savepoint}, after batch {saved.batch_id}")
        self._write(files, location, done)

    def _remove_half_done(
        self, files: HadoopFiles, query: ScriptQuery, location: str, record: RestoredCheckpoint
    ) -> None:
        if record.job_id != self._job_id:
            raise RestoreRefused(
                f"{query.started.location} has an unfinished restore for job {record.job_id}",
                hint="cancel that job, or remove the directory if it has ended",
            )
        for part in (*_PARTS, _RECORD):
            self._may_commit()
            files.delete(f"{location}/{part}")

    def _read(self, storage: SavepointStorage, files: HadoopFiles) -> tuple[Manifest, str]:
        if self._manifest is None:
            on_disk = files.path_on_disk(self._savepoint)
            if on_disk is not None:
                wait_until_available(lambda: _require_readable(Path(on_disk)), "savepoint", self._notices)
            try:
                data = storage.read(MANIFEST_NAME)
            except Absent as error:
                raise self._no_savepoint(storage, error) from error
            manifest = decode_manifest(data, f"{self._savepoint}/{MANIFEST_NAME}")
            self._check_version(manifest)
            self._manifest = manifest, manifest_sha256(data)
        return self._manifest

    def _no_savepoint(self, storage: SavepointStorage, error: Absent) -> RestoreRefused:
        hint = "'emberkeep savepoint list' shows existing savepoints"
        with contextlib.suppress(Absent):
            storage.read(DELETING_NAME)
            return RestoreRefused(f"the savepoint {self._savepoint} is being deleted, and files may be gone", hint=hint)
        return RestoreRefused(f"no savepoint exists at {self._savepoint}: {error.message}", hint=hint)

    def _check_version(self, manifest: Manifest) -> None:
        verdict = judge(manifest.spark_version, spark_version())
        if verdict.refusal:
            raise RestoreRefused(
                f"cannot start from the savepoint {self._savepoint}: {verdict.refusal}",
                hint=f"use Spark {manifest.spark_version} or newer, or a savepoint made with this Spark",
            )
        if verdict.warning:
            self._notices.say(f"warning: the savepoint {self._savepoint}: {verdict.warning}")

    def _choose(self, manifest: Manifest, query: ScriptQuery) -> QuerySavepoint | None:
        """Return the query's part of the savepoint; None if it has none and must start empty. Raises RestoreRefused."""
        # By its name, too: an earlier release did not shorten the keys of long names.
        named = (each for each in manifest.queries if each.key == query.key or (query.name and each.name == query.name))
        saved = next(named, None)
        if saved is None:
            left = [each for each in manifest.queries if each.key not in self._taken]
            if left:
                raise RestoreRefused(
                    f"the savepoint {self._savepoint} has no state for {query}; it has state for {_named(left)}, "
                    "which the script has not started yet",
                    hint="give the query its earlier name, or its earlier position among the unnamed queries; start "
                    "new queries after the others",
                )
            self._notices.say(f"{query} is not in the savepoint: it starts from its own checkpoint, or from nothing")
            return None
        if saved.sink != query.identity.sink:
            self._notices.say(f"{query} wrote to {saved.sink} when the savepoint was made")
        self._taken[saved.key] = query.key
        return saved

    def _stands_at(self, files: HadoopFiles, query: ScriptQuery, location: str, saved: QuerySavepoint) -> bool:
        """True if the query's own checkpoint is exactly at the savepoint's batch; False if there is no checkpoint.

        Raises RestoreRefused if the checkpoint belongs to another query, is at another batch, or has read something
        else: a copy with which another job continued has the same query id, and may have the same batch number.
        """
        if not files.exists(f"{location}/metadata"):
            return False
        found = str(json.loads(files.read_text(f"{location}/metadata")).get("id"))
        state = log_state(files, location)
        if found != saved.query_id:
            what = "of another query"
        elif not state.planned == state.committed == saved.batch_id:
            what = f"at another batch ({state})"
        elif _offsets_of(files, location, saved.batch_id) != saved.offsets:
            what = f"at another place of its input: its batch {saved.batch_id} is not that of the savepoint"
        else:
            return True
        raise RestoreRefused(
            f"the checkpoint {query.started.location} of {query} is {what}; the savepoint {self._savepoint} was made "
            f"after batch {saved.batch_id}",
            hint="give the query an empty checkpointLocation, or start the job without a savepoint to continue from "
            "that checkpoint",
        )

    def _verify(self, storage: SavepointStorage, manifest: Manifest) -> None:
        """Check size and checksum of every file of the savepoint, once. Raises SavepointDamaged."""
        if self._verified:
            return

        def look(file: SavepointFile) -> tuple[SavepointFile, SavepointFile]:
            return file, self._look(storage, file)

        work_through(sorted(manifest.files, key=_size), look, lambda pair: self._compare(*pair))
        self._verified = True

    def _look(self, storage: SavepointStorage, file: SavepointFile) -> SavepointFile:
        try:
            return storage.check(file.path)
        except Absent as error:
            raise self._missing(file.path) from error

    def _missing(self, path: str) -> SavepointDamaged:
        return SavepointDamaged(f"{self._savepoint}: {path} is missing", hint=_ANOTHER)

    def _compare(self, wanted: SavepointFile, found: SavepointFile) -> None:
        if wanted != found:
            raise SavepointDamaged(
                f"{self._savepoint}: {wanted.path} is damaged: {found.size} bytes with SHA-256 {found.sha256}, the "
                f"manifest says {wanted.size} with {wanted.sha256}",
                hint=_ANOTHER,
            )

    def _put(
        self,
        files: HadoopFiles,
        storage: SavepointStorage,
        location: str,
        wanted: Sequence[SavepointFile],
        done: RestoredCheckpoint,
    ) -> None:
        """Copy the query's files into its checkpoint, after recording that a restore has begun.

        ``wanted``: the query's files in the savepoint. The caller records that the restore is complete.
        """
        self._write(files, location, msgspec.structs.replace(done, complete=False))
        prefix = query_directory(done.key) + "/"
        targets = [f"{location}/{file.path.removeprefix(prefix)}" for file in wanted]
        files.make_directories(sorted({target.rpartition("/")[0] for target in targets}))

        def fetch(file: SavepointFile) -> tuple[SavepointFile, SavepointFile]:
            self._may_commit()
            return file, storage.fetch(file.path, f"{location}/{file.path.removeprefix(prefix)}")

        work_through(sorted(wanted, key=_size), fetch, lambda pair: self._compare(*pair))
        files.sync_copies(location, targets)
        log.info("restored", location=location, savepoint=self._savepoint, query=done.key, files=len(wanted))

    def _write(self, files: HadoopFiles, location: str, record: RestoredCheckpoint) -> None:
        self._may_commit()
        data = encode_record(RECORD_KIND, RECORD_VERSION, msgspec.json.encode(record))
        files.write(f"{location}/{_RECORD}", data)

    @staticmethod
    def _record(files: HadoopFiles, location: str) -> RestoredCheckpoint | None:
        where = f"{location}/{_RECORD}"
        try:
            payload = decode_record(files.read_bytes(where), RECORD_KIND, RECORD_VERSION, where=where)
            return from_json(payload, RestoredCheckpoint)
        except Absent:
            return None
        except msgspec.MsgspecError as error:
            raise RestoreRefused(
                f"{where} is damaged: {error}", hint="remove the checkpoint to restore it again"
            ) from error


def _offsets_of(files: HadoopFiles, location: str, batch: int) -> tuple[str, ...]:
    """Return the end offsets of a planned batch of a checkpoint, as the manifest of a savepoint has them."""
    return logs.offset_texts(files.read_text(f"{location}/offsets/{batch}")) if batch >= 0 else ()


def _size(file: SavepointFile) -> int:
    return file.size


def _require_readable(savepoint: Path) -> None:
    """Raise Unavailable if the savepoint's manifest cannot be read now, or if it is unknown whether there is one."""
    try:
        savepoint.lstat()
    except OSError as error:
        problem = cannot_read(savepoint, error)
        if isinstance(problem, Unavailable):
            raise problem from error
        return
    read_if_there(savepoint / MANIFEST_NAME)


_ANOTHER = "use another savepoint, or an undamaged copy of this one"


def _named(queries: Sequence[QuerySavepoint]) -> str:
    return ", ".join(repr(each.name) if each.name else f"an unnamed query to {each.sink}" for each in queries[:5])
