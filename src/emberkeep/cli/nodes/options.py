"""Options of the commands that block a node, and the request that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from emberkeep.base.errors import InvalidInput

if TYPE_CHECKING:
    from emberkeep.blocklist.model import BlockAction, EvacuatedDrivers
    from emberkeep.protocol.rest_blocklist import BlockRequest

Flag = Annotated[bool, Parameter(negative=())]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """Options that say why and for how long to block, and whether a node or a task manager is named."""

    cause: Annotated[str, Parameter(metavar="TEXT")]
    "The reason, shown to everyone who lists the nodes."
    duration: Annotated[str | None, Parameter(metavar="DURATION", name="--for")] = None
    "For how long, such as 30min, 2h or 1d. Default: until it is unblocked."
    until: Annotated[str | None, Parameter(metavar="TIME")] = None
    "Until when, such as 2026-01-31T18:00 (local time) or with a zone. Default: until it is unblocked."
    merge: Flag = False
    "If it is blocked already, merge: the stronger action, the later end, both causes."
    wait: Flag = False
    "Return when its slots are empty and, after `evacuate`, when the drivers that move have left."
    timeout: Annotated[str | None, Parameter(metavar="DURATION")] = None
    "With --wait: for how long. Exit code 5 if something still runs there after that. Default: no limit."
    task_manager: Flag = False
    "NODE is the id of a single task manager, not of a node."

    def request(self, action: BlockAction, drivers: EvacuatedDrivers | None = None) -> BlockRequest:
        """Return the request, without the end that ``--for`` gives. Raises InvalidInput."""
        from emberkeep.protocol.rest_blocklist import BlockRequest

        if self.duration is not None and self.until is not None:
            raise InvalidInput("--for and --until are both given", field="--until", hint="give one of them")
        return BlockRequest(
            action=action, cause=self.cause, drivers=drivers, end_timestamp=self._end(), allow_merge=self.merge
        )

    def length_ms(self) -> int | None:
        """Return the duration of ``--for`` in milliseconds; None without ``--for``. Raises InvalidInput."""
        from emberkeep.base.configuration.option_types import duration

        if self.duration is None:
            return None
        try:
            length = round(duration(self.duration) * 1000)
        except ValueError as error:
            raise InvalidInput(f"--for {self.duration}: {error}", field="--for") from None
        if length <= 0:
            hint = "leave it out to block until it is unblocked"
            raise InvalidInput(f"--for {self.duration}: must be more than 0", field="--for", hint=hint)
        return length

    def patience(self) -> float | None:
        """Return how many seconds to wait; None for no limit. Raises InvalidInput."""
        from emberkeep.cli.jobs.stop import milliseconds

        if self.timeout is not None and not self.wait:
            raise InvalidInput(
                "--timeout is given without --wait", field="--timeout", hint="--timeout limits how long --wait waits"
            )
        limit = milliseconds(self.timeout)
        return None if limit is None else limit / 1000

    def _end(self) -> int | None:
        """Return the time of ``--until`` in Unix milliseconds; None without ``--until``. Raises InvalidInput."""
        from datetime import datetime

        if self.until is not None:
            try:
                return round(datetime.fromisoformat(self.until).timestamp() * 1000)
            except (ValueError, OverflowError, OSError):
                hint = "for example 2026-01-31T18:00 or 2026-01-31T17:00:00Z"
                raise InvalidInput(f"--until {self.until}: not a time", field="--until", hint=hint) from None
        return None
