"""Which locations a task manager's gateway opens for jobs. Pure: paths come in with their links resolved.

A script chooses where its checkpoints are, but a gateway runs with the task manager's rights. So it opens neither
Emberkeep's own places nor the system's, nor a directory that contains one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from emberkeep.base.errors import InvalidInput

SYSTEM_PLACES = ("/boot", "/etc", "/proc", "/sys")


@dataclass(frozen=True)
class ReachableRoots:
    """Places that jobs do not reach: canonical absolute paths, or locations in object stores."""

    closed: tuple[str, ...]

    def check(self, location: str, opened: str, own: str) -> None:
        """Check that a job may open ``opened``, the real path of ``location``. Raises InvalidInput.

        ``own``: the real path of the job's own root if ``location`` is below that root before symbolic links are
        followed, else "".
        """
        if own:
            if not is_within(opened, own):
                raise _refused(location, "a symbolic link leads out of the job's own directory")
            return
        for place in self.closed:
            # By its name, too: the links in /proc lead anywhere.
            if any(is_within(path, place) or is_within(place, path) for path in (location, opened)):
                raise _refused(location, f"jobs do not reach {place}")


def is_within(path: str, directory: str) -> bool:
    """True if ``path`` is ``directory`` or below it. Both are canonical."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _refused(location: str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"state gateways do not open {location[:200]!r}: {reason}",
        field="checkpointLocation",
        hint="choose a directory for checkpoints alone that neither is in nor contains Emberkeep's own directories",
    )
