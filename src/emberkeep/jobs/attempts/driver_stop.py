"""Orders the driver of a job to stop, with a grace period that only becomes shorter."""

from __future__ import annotations

from emberkeep.jobs import events as ev
from emberkeep.jobs.driver import Driver
from emberkeep.jobs.state import JobState
from emberkeep.jobs.traces.moment import Moment


class DriverStop:
    """Orders a driver to stop, and repeats the order until the driver is gone. Part of the JobMachine."""

    def __init__(self, job: JobState) -> None:
        self._job = job

    def begin(self, driver: Driver, grace: float, now: Moment) -> None:
        """Order a driver to stop. Does nothing if it was ordered to stop before."""
        if driver.stop_at is None:
            driver.stop_at = now.at
            driver.stop_until = now.at + grace
            self.order(driver, now)

    def hasten(self, driver: Driver, grace: float, now: Moment) -> None:
        """Shorten the remaining grace period of a driver that is being stopped."""
        if not driver.is_gone and driver.stop_at is not None and now.at + grace < driver.stop_until:
            driver.stop_until = now.at + grace
            self.order(driver, now)

    def order(self, driver: Driver, now: Moment) -> None:
        """Send the order with what remains of the grace period, and again later if the driver does not end."""
        driver.order_again_at = now.at + self._job.policy.repeat
        if driver.place is not None and driver.reachable:
            grace = max(0.0, driver.stop_until - now.at)
            self._job.effects.append(ev.StopDriver(driver.attempt, driver.place, grace))
