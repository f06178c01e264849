"""A component whose durable steps are tried one by one: every crash, and every refusal of the disk."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from emberkeep.base.errors import EmberkeepError
from tests.support.crashes.followed import FollowedFiles
from tests.support.crashes.observed import differences, observed
from tests.support.crashes.recorded import Crash, Loss, refusing

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
    AssertionError if a promise is broken. ``unseen``: the end of the names of files that other code writes, and that a
    restart need not find. ``refuses``: whether the disk can refuse its steps here.
    """

    name: str
    process: str
    live: Live
    check: Check
    unseen: str = ""
    refuses: bool = True


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
    for step in range(files.steps if component.refuses else 0):
        refused = _lived(component, scratch / "refused", points, step)
        points.tried[REFUSED] += 1
        refused.build(scratch / "after", Loss.CLEAN)
        crash = Crash(step, f"step {step} was refused", Loss.CLEAN, scratch / "after", refused.marks)
        _check(component, crash, points)
    return points


def _lived(component: Component, root: Path, points: Points, refused: int | None) -> FollowedFiles:
    root.mkdir(parents=True)
    files = FollowedFiles(root, None if refused is None else refusing(refused), remembers=refused is None)
    try:
        with observed(files):
            if refused is None:
                component.live(root, files)
            else:
                with contextlib.suppress(EmberkeepError, OSError, NotDone):
                    component.live(root, files)
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
