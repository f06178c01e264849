"""The ownership record of a place for BLOBs in an object store: one object next to the jobs' objects."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError

from emberkeep.adapters.object_store.clients import open_object_store, parse_object_location
from emberkeep.adapters.object_store.errors import object_store_error
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, RetryLater, Unavailable
from emberkeep.base.files.ownership import OWNER_FILE, Owner, decode_owner, encode_owner
from emberkeep.base.ids import is_job_id


class ObjectOwnerRecord:
    """Implements BlobOwnerRecord."""

    def __init__(self, location: str) -> None:
        """``location``: s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. Raises Fatal."""
        address = parse_object_location(location, "the HA store")
        self._location = str(address)
        with self._errors("use"):
            self._store = open_object_store(address)

    def read(self) -> Owner | None:
        data = self._bytes()
        return None if data is None else decode_owner(data, where=f"{self._location}/{OWNER_FILE}")

    def _bytes(self) -> bytes | None:
        try:
            with self._errors("read"):
                return bytes(obstore.get(self._store, OWNER_FILE).bytes())
        except Absent:
            return None

    def create(self, owner: Owner) -> None:
        exists = Conflict(f"{self._location}/{OWNER_FILE} exists already")
        try:
            with self._errors("write"):
                obstore.put(self._store, OWNER_FILE, encode_owner(owner), mode="create", use_multipart=False)
        except AlreadyExistsError:
            pass  # perhaps created by this very request, whose first reply was lost
        except NotSupportedError:
            if self.read() is not None:
                raise exists from None
            self.replace(owner)
        # Some stores ignore the condition, so read the record back.
        if self.read() != owner:
            raise exists

    def replace(self, owner: Owner) -> None:
        data = encode_owner(owner, self._bytes())
        with self._errors("write"):
            obstore.put(self._store, OWNER_FILE, data, use_multipart=False)

    def has_jobs(self) -> bool:
        with self._errors("list"):
            found = obstore.list_with_delimiter(self._store)
        return any(is_job_id(name.rstrip("/").rpartition("/")[2]) for name in found["common_prefixes"])

    @contextlib.contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (EmberkeepError, AlreadyExistsError, NotSupportedError):
            raise
        except (BaseError, OSError, ValueError) as error:
            problem = object_store_error(f"cannot {verb} the ownership record in {self._location}", error)
            if isinstance(problem, RetryLater):
                raise Unavailable(problem.message, hint=problem.hint) from None
            raise problem from None
