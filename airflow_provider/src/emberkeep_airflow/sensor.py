"""The sensor: a task that waits for a savepoint of a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowException

from emberkeep.base.errors import EmberkeepError, RetryLater
from emberkeep_airflow.hook import DEFAULT_CONNECTION, EmberkeepHook
from emberkeep_airflow.job_run import call
from emberkeep_airflow.savepoints import SavepointWait
from emberkeep_airflow.triggers import EmberkeepSavepointTrigger


class EmberkeepSavepointSensor(BaseSensorOperator):
    """Wait until a job has a savepoint, and return its location (XCom ``return_value``).

    Fails if there is no such job, or if the job has ended without such a savepoint.

    :param job: the job's id, a prefix of the id, or its name
    :param after: moment (ISO 8601, with its zone) that the savepoint must not be older than; by default any is taken
    :param deferrable: wait in the triggerer, without a worker
    """

    template_fields: Sequence[str] = ("emberkeep_conn_id", "job", "after")
    ui_color = "#f4dcc9"

    def __init__(
        self,
        *,
        job: str,
        after: str = "",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        emberkeep_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.after = after
        self.deferrable = deferrable
        self.emberkeep_conn_id = emberkeep_conn_id

    def execute(self, context: Context) -> Any:
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if found.is_done:
            return found.xcom_value
        self.defer(
            trigger=EmberkeepSavepointTrigger(
                self.emberkeep_conn_id, self.job, moment_ms(self.after), self.poke_interval
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )
        return None

    def execute_complete(self, context: Context, event: dict[str, Any]) -> str:
        """Return the location that the trigger has found."""
        if "problem" in event:
            raise AirflowException(event["problem"])
        return str(event["savepoint"])

    def poke(self, context: Context) -> PokeReturnValue:
        access = EmberkeepHook(self.emberkeep_conn_id).access
        try:
            found = call(access.endpoint, SavepointWait(self.job, moment_ms(self.after)).look)
        except RetryLater as error:
            self.log.warning("%s; looking again", error)
            return PokeReturnValue(is_done=False)
        except EmberkeepError as error:
            raise AirflowException(str(error)) from error
        return PokeReturnValue(is_done=bool(found), xcom_value=found or None)


def moment_ms(text: str) -> int:
    """Return a moment in ISO 8601 as Unix milliseconds; 0 for "". A moment without a zone is in UTC.

    >>> moment_ms("2026-01-01T00:00:00+01:00")
    1767222000000
    """
    if not text:
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise AirflowException(f"after: {text!r} is not a moment such as 2026-01-31T12:00:00+00:00") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
