"""Tries in an object store what recovery relies on. Leaves nothing behind.

Imported only for a location in an object store, as it needs obstore.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError

from emberkeep.adapters.object_store.clients import ObjectStore, open_object_store, parse_object_location
from emberkeep.adapters.object_store.errors import object_store_error
from emberkeep.base.errors import EmberkeepError
from emberkeep.diagnosis.object_store import CONDITIONAL, ObjectProblem, ObjectStep, ObjectStoreFacts

_OLD, _NEW = b"old", b"new content of the object"
_PART_BYTES = 8 * 1024**2


class _Differs(Exception):
    """A step has worked, but its effect is not the required one."""


def try_object_store(location: str, purpose: str) -> ObjectStoreFacts:
    """Try all steps below a new prefix of ``location``, and delete what they wrote.

    Blocks for as long as obstore tries a request again: about a minute for a store that does not answer.
    """
    shown = location.partition("://")[0]  # a malformed location may contain a secret
    problems: list[ObjectProblem] = []
    try:
        address = parse_object_location(location, "the object store")
        shown = str(address)
        store = open_object_store(address)
    except (EmberkeepError, BaseError, OSError, ValueError) as error:
        problems.append(_problem(ObjectStep.OPEN, error))
        return ObjectStoreFacts(location=shown, purpose=purpose, problems=tuple(problems))
    trial = _Trial(store, f".emberkeep-doctor-{secrets.token_hex(6)}")
    try:
        for step, work in trial.steps():
            try:
                work()
            except (_Differs, EmberkeepError, BaseError, OSError, ValueError) as error:
                problems.append(_problem(step, error))
                if step not in CONDITIONAL:
                    break
    finally:
        trial.clean_up()
    return ObjectStoreFacts(location=shown, purpose=purpose, problems=tuple(problems))


def _problem(step: ObjectStep, error: Exception) -> ObjectProblem:
    if isinstance(error, _Differs):
        return ObjectProblem(step=step, reason=str(error))
    told = error if isinstance(error, EmberkeepError) else object_store_error("", error)
    return ObjectProblem(step=step, reason=told.message.removeprefix(": "), hint=told.hint or "")


class _Trial:
    """The steps, over three objects below ``prefix``. They raise _Differs, or what obstore raises."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._file, self._other, self._large = (f"{prefix}/{name}" for name in ("file", "other", "large"))
        self._left: list[str] = []  # objects that may exist

    def steps(self) -> Iterator[tuple[ObjectStep, Callable[[], None]]]:
        """Yield each step with what does it, in the order in which they must be done."""
        yield ObjectStep.CREATE, self._create
        yield ObjectStep.READ_BACK, self._read_back
        yield ObjectStep.REPLACE, self._replace
        yield ObjectStep.LIST, self._list
        yield ObjectStep.CREATE_ONCE, self._create_once
        yield ObjectStep.COPY_ONCE, self._copy_once
        yield ObjectStep.PARTS, self._parts
        yield ObjectStep.DELETE, self._delete

    def clean_up(self) -> None:
        """Delete the objects that may exist, also from a store that refuses to list them."""
        for name in self._left:
            with contextlib.suppress(BaseError, OSError, ValueError):
                obstore.delete(self._store, name)

    def _create(self) -> None:
        self._left.append(self._file)
        obstore.put(self._store, self._file, _OLD, use_multipart=False)

    def _read_back(self) -> None:
        self._expect(_OLD)

    def _replace(self) -> None:
        obstore.put(self._store, self._file, _NEW, use_multipart=False)
        self._expect(_NEW)

    def _list(self) -> None:
        if (names := self._names()) != [self._file]:
            raise _Differs(f"{len(names)} objects are listed, not the one that was written")

    def _create_once(self) -> None:
        _refused(lambda: obstore.put(self._store, self._file, _OLD, mode="create", use_multipart=False), "written over")

    def _copy_once(self) -> None:
        self._left.append(self._other)
        obstore.put(self._store, self._other, _OLD, use_multipart=False)
        _refused(lambda: obstore.copy(self._store, self._other, self._file, overwrite=False), "copied over")

    def _parts(self) -> None:
        data = bytes(_PART_BYTES), b"the last part"
        self._left.append(self._large)
        obstore.put(self._store, self._large, iter(data), chunk_size=_PART_BYTES, use_multipart=True)
        if obstore.head(self._store, self._large)["size"] != sum(map(len, data)):
            raise _Differs("the object has another size than what was written")

    def _delete(self) -> None:
        for name in self._names():
            obstore.delete(self._store, name)
        if names := self._names():
            raise _Differs(f"{len(names)} objects are still listed")
        self._left.clear()

    def _expect(self, content: bytes) -> None:
        if bytes(obstore.get(self._store, self._file).bytes()) != content:
            raise _Differs("the content differs from what was written")

    def _names(self) -> list[str]:
        return [each["path"] for batch in obstore.list(self._store, self._prefix) for each in batch]


def _refused(work: Callable[[], object], done: str) -> None:
    """Raise _Differs unless ``work`` is refused, because the object exists."""
    try:
        work()
    except AlreadyExistsError:
        return
    except NotSupportedError:
        raise _Differs("the store does not offer it") from None
    raise _Differs(f"the object was {done}")
