"""Options of warm standby processes."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import choice, integer
from emberkeep.base.configuration.values import Option, define

STANDBY_DRIVERS = define(
    Option(
        "taskmanager.standby.drivers",
        1,
        integer(0, 64),
        "integer",
        "Warm driver processes that a task manager keeps ready for jobs. They use memory that slots and drivers "
        "leave free, and are warmed at idle priority. 0: none.",
    )
)
STANDBY_EXECUTORS = define(
    Option(
        "taskmanager.standby.executors",
        1,
        integer(0, 64),
        "integer",
        "Warm executor processes that a task manager keeps ready for jobs, on the same terms, and one more for each "
        "job that has a reserved standby there (`execution.standby`), up to its number of slots. 0: none.",
    )
)
STANDBY = define(
    Option(
        "execution.standby",
        "none",
        choice("none", "hot"),
        "choice",
        "Whether a job that runs streaming queries has a driver process reserved for its next attempt, on another node "
        "than its driver: warm, and with what the script imports. `hot`: where a task manager keeps standby drivers "
        "and has memory for one more. `none`: the next attempt takes any warm driver that fits.",
    )
)
