"""A component whose durable steps are tried one by one: every crash, and every refusal of the disk."""

from __future__ import annotations

import contextlib
import resource
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from emberkeep.base.errors import EmberkeepError
from tests.support.crashes.followed import FollowedFiles
from tests.support.crashes.observed import differences, observed
from tests.support.crashes.recorded import Crash, Loss, RecordedFiles, refusing

REFUSED = "REFUSED"
KINDS = (*(loss.value for loss in Loss), REFUSED)


class NotDone(Exception):
    """The component has said that it could not do a step of its life."""


Live = Callable[[Path, FollowedFiles], None]
Check = Callable[[Crash], None]


@dataclass(frozen=True)
class Component:
    """What one kind of process keeps on its disk.

    ``process``: whose disk it is. ``live``: does everything that changes the disk, and marks each promise that it has
    given; raises EmberkeepError, OSError or NotDone where the disk refuses. ``check``: restarts from a crash, raises
    AssertionError if a promise is broken. ``given``: writes what is on the disk, durably, when the life begins.
    ``unseen``: the end of the names of files that other code writes, and that a restart need not find. ``most_sizes``:
    the disk refuses each step once, and other code, such as SQLite, by letting no file grow beyond one of these sizes
    (bytes), in one life each.
    """

    name: str
    process: str
    live: Live
    check: Check
    given: Callable[[Path], None] = lambda _: None
    unseen: str = ""
    most_sizes: Sequence[int] = ()


@dataclass
class KeptFile:
    """A file that holds the value of its last complete write. ``writes``: each returns what the file holds then.

    ``read``: returns what a file holds; None where it counts for nothing. ``is_random``: each life writes values of its
    own. ``again``: which of the writes a restart repeats.
    """

    name: str
    writes: list[Callable[[Path], object]]
    read: Callable[[Path], object]
    is_random: bool = False
    again: int = 0
    values: list[object] = field(default_factory=list)

    def live(self, root: Path, files: RecordedFiles) -> None:
        path, values = root / self.name, list[object]([None])
        if self.is_random:
            self.values = values
        for number, write in enumerate(self.writes):
            values.append(write(path))
            # Some are best effort: what was not written is no promise.
            if self.read(path) != values[-1]:
                raise NotDone(f"write {number} of {self.name}")
            files.mark(str(number))
        self.values = values

    def check(self, crash: Crash) -> None:
        path, done = crash.directory / self.name, len(crash.marks)
        found = self.read(path)
        # The life ended in a write that was refused, and nobody knows which value it would have had.
        is_unknown = self.is_random and len(self.values) == done + 1 <= len(self.writes)
        assert is_unknown or found in self.values[done : done + 2], f"{found} is neither the old value nor the new one"
        again = self.writes[self.again](path)
        assert self.read(path) == again, "it cannot be written any more"


@dataclass
class Points:
    """What became of a component's crash points. ``tried``: their number by kind. ``different``: disks that differ."""

    tried: Counter[str] = field(default_factory=Counter)
    different: int = 0
    failures: list[str] = field(default_factory=list)


def try_component(component: Component, scratch: Path) -> Points:
    """Let a component live, crash it after each step in every way, and let the disk refuse each step once."""
    points = Points()
    files = _lived(component, scratch / "whole", points, None)
    seen: set[object] = set()
    for crash, content in files.states():
        points.tried[crash.loss.value] += 1
        if (crash.marks, content) in seen:
            continue  # a restart finds what it has found after another crash
        seen.add((crash.marks, content))
        files.build(scratch / "after", crash.loss, crash.step)
        _check(component, replace(crash, directory=scratch / "after"), points)
    refusals = [_Refusal(size=size) for size in component.most_sizes]
    for refusal in (*refusals, *(_Refusal(step=step) for step in range(files.steps))):
        refused = _lived(component, scratch / "refused", points, refusal)
        points.tried[REFUSED] += 1
        refused.build(scratch / "after", Loss.CLEAN)
        crash = Crash(refused.steps, str(refusal), Loss.CLEAN, scratch / "after", refused.marks)
        _check(component, crash, points)
    return points


@dataclass(frozen=True)
class _Refusal:
    """What a disk refuses: one step, or that any file grows beyond a size."""

    step: int | None = None
    size: int | None = None

    def __str__(self) -> str:
        return f"step {self.step} was refused" if self.size is None else f"no file may have more than {self.size} bytes"

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        if self.size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def _lived(component: Component, root: Path, points: Points, refusal: _Refusal | None) -> FollowedFiles:
    root.mkdir(parents=True)
    component.given(root)
    step = None if refusal is None else refusal.step
    files = FollowedFiles(root, None if step is None else refusing(step), remembers=refusal is None)
    try:
        with observed(files):
            if refusal is None:
                component.live(root, files)
            else:
                with refusal.in_force(), contextlib.suppress(EmberkeepError, OSError, NotDone):
                    component.live(root, files)
        with contextlib.suppress(OSError):
            files.absorb()  # what other code has done last
        unseen = [
            name
            for name in differences(files, root, root.with_name("recorded"))
            if not component.unseen or not name.endswith(component.unseen)
        ]
        if unseen:
            points.failures.append(f"{component.name}: not seen by the record: {', '.join(unseen)}")
    finally:
        shutil.rmtree(root)
        shutil.rmtree(root.with_name("recorded"), ignore_errors=True)
    return files


def _check(component: Component, crash: Crash, points: Points) -> None:
    points.different += 1
    try:
        component.check(crash)
    except (AssertionError, EmberkeepError, OSError) as error:
        where = f"{component.name}: {crash.loss.value} after step {crash.step} ({crash.last})"
        points.failures.append(f"{where}: {type(error).__name__}: {error}")
    finally:
        shutil.rmtree(crash.directory, ignore_errors=True)
