"""The autoscaler's settings for one job: the cluster's configuration, overridden by the job's own options."""

from __future__ import annotations

from emberkeep.autoscale.model import AutoscaleSettings
from emberkeep.base.configuration.options.autoscaling import (
    AUTOSCALE,
    AUTOSCALE_BATCH_TIME,
    AUTOSCALE_CATCH_UP,
    AUTOSCALE_DOWN_PAUSE,
    AUTOSCALE_MAX,
    AUTOSCALE_MIN,
    AUTOSCALE_TARGET,
    AUTOSCALE_UP_PAUSE,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput


def autoscale_settings(configuration: Configuration, asked: int) -> AutoscaleSettings | None:
    """Return the settings; None if autoscaling is off. ``asked``: executors that the job asks for.

    Raises InvalidInput if the bounds contradict each other.
    """
    if not configuration[AUTOSCALE]:
        return None
    minimum, maximum = configuration[AUTOSCALE_MIN], configuration[AUTOSCALE_MAX] or asked
    if minimum > maximum:
        raise InvalidInput(
            f"{AUTOSCALE_MIN.key} is {minimum}, more than the maximum of {maximum}",
            field=AUTOSCALE_MIN.key,
            hint=f"set {AUTOSCALE_MAX.key}; without it, the maximum is the number of executors that the job asks for",
        )
    return AutoscaleSettings(
        minimum=minimum,
        maximum=maximum,
        target=configuration[AUTOSCALE_TARGET],
        batch_ms=_ms(configuration[AUTOSCALE_BATCH_TIME]),
        catch_up_ms=_ms(configuration[AUTOSCALE_CATCH_UP]),
        up_pause_ms=_ms(configuration[AUTOSCALE_UP_PAUSE]),
        down_pause_ms=_ms(configuration[AUTOSCALE_DOWN_PAUSE]),
    )


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
