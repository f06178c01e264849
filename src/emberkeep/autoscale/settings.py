"""The autoscaler's settings for one job: the cluster's configuration, overridden by the job's own options."""

from __future__ import annotations

from emberkeep.autoscale.model import AutoscaleSettings
from emberkeep.base.configuration import options
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput


def autoscale_settings(configuration: Configuration, asked: int) -> AutoscaleSettings | None:
    """Return the settings; None if autoscaling is off. ``asked``: executors that the job asks for.

    Raises InvalidInput if the bounds contradict each other.
    """
    if not configuration[options.AUTOSCALE]:
        return None
    minimum, maximum = configuration[options.AUTOSCALE_MIN], configuration[options.AUTOSCALE_MAX] or asked
    if minimum > maximum:
        raise InvalidInput(
            f"{options.AUTOSCALE_MIN.key} is {minimum}, more than the maximum of {maximum}",
            field=options.AUTOSCALE_MIN.key,
            hint=f"set {options.AUTOSCALE_MAX.key}; without it, the maximum is the number of executors that the job "
            "asks for",
        )
    return AutoscaleSettings(
        minimum=minimum,
        maximum=maximum,
        target=configuration[options.AUTOSCALE_TARGET],
        batch_ms=_ms(configuration[options.AUTOSCALE_BATCH_TIME]),
        catch_up_ms=_ms(configuration[options.AUTOSCALE_CATCH_UP]),
        up_pause_ms=_ms(configuration[options.AUTOSCALE_UP_PAUSE]),
        down_pause_ms=_ms(configuration[options.AUTOSCALE_DOWN_PAUSE]),
    )


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
