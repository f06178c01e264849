"""What a declaration says about upgrades and periodic savepoints of its job."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from emberkeep.base.configuration.option_types import duration
from emberkeep.base.configuration.options.savepoints import SAVEPOINT_INTERVAL, SAVEPOINT_MAX_AGE, SAVEPOINTS_RETAINED
from emberkeep.base.errors import InvalidInput
from emberkeep.protocol.upgrades.rest_upgrades import BATCHES, MOST_BATCHES, MOST_RESTARTS, RESTARTS


class UpgradePolicy(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="kebab"
):
    """When changed code is good, see `emberkeep upgrade`. Else the old code is started again."""

    batches: Annotated[
        int, Meta(ge=1, le=MOST_BATCHES, description="Micro-batches that each streaming query must commit.")
    ] = BATCHES
    within: Annotated[str, Meta(description="Time in which the queries must do so, such as 90s or 1h.")] = "10min"
    restarts: Annotated[
        int, Meta(ge=0, le=MOST_RESTARTS, description="How often the driver may be restarted in this time.")
    ] = RESTARTS

    def within_ms(self) -> int:
        """Return the time in milliseconds. Raises InvalidInput."""
        try:
            milliseconds = int(duration(self.within) * 1000)
        except ValueError as error:
            raise InvalidInput(f"upgrade.within: {self.within!r} is not valid: {error}", field="upgrade") from None
        if milliseconds < 1:
            raise InvalidInput(f"upgrade.within: {self.within!r} is no time", field="upgrade")
        return milliseconds


class SavepointSchedule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="kebab"
):
    """Periodic savepoints of the job: its options `execution.savepoint.*`."""

    interval: Annotated[str, Meta(description="Time from one savepoint to the next, such as 6h.")]
    retained: Annotated[int | None, Meta(description="How many are kept. Default: the cluster's.")] = None
    max_age: Annotated[str, Meta(description="Age at which one is deleted. Default: the cluster's.")] = ""

    def options(self) -> dict[str, str]:
        """Return the options that this means."""
        found = {SAVEPOINT_INTERVAL.key: self.interval}
        if self.retained is not None:
            found[SAVEPOINTS_RETAINED.key] = str(self.retained)
        if self.max_age:
            found[SAVEPOINT_MAX_AGE.key] = self.max_age
        return found
