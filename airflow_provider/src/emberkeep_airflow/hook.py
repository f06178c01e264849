"""The hook: an Emberkeep cluster by the id of its Airflow connection."""

from __future__ import annotations

import functools
from typing import Any

from airflow.sdk import BaseHook

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep_airflow.connection import ClusterAccess, cluster_access
from emberkeep_airflow.job_run import call, cancelled

DEFAULT_CONNECTION = "emberkeep_default"


class EmberkeepHook(BaseHook):
    """Call an Emberkeep cluster. Methods raise the errors of `emberkeep.client`.

    ``emberkeep_conn_id``: a connection of type ``emberkeep``.
    """

    conn_name_attr = "emberkeep_conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = "emberkeep"
    hook_name = "Emberkeep"

    def __init__(self, emberkeep_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.emberkeep_conn_id = emberkeep_conn_id

    @functools.cached_property
    def access(self) -> ClusterAccess:
        """The cluster's address and the defaults of its jobs. Raises InvalidInput."""
        return cluster_access(self.get_connection(self.emberkeep_conn_id))

    async def access_async(self) -> ClusterAccess:
        """Return ``access`` from within an event loop."""
        return cluster_access(await self.aget_connection(self.emberkeep_conn_id))

    def get_conn(self) -> RestClient:
        """Return a client of the cluster, to use as ``async with hook.get_conn() as client``."""
        return RestClient(self.access.endpoint)

    def job(self, job_id: str) -> JobDetailsInfo:
        """Return the state of a job. Raises Absent."""
        return call(self.access.endpoint, lambda client: client.job(JobId(job_id)))

    def cancel(self, job_id: str) -> bool:
        """Cancel a job. False if it has ended already, or does not exist."""
        return call(self.access.endpoint, lambda client: cancelled(client, JobId(job_id)))

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the cluster answers, and a sentence about it. Airflow's connection form shows it."""
        try:
            overview = call(self.access.endpoint, lambda client: client.overview(), patience=3.0)
        except EmberkeepError as error:
            return False, str(error)
        return True, f"{overview.taskmanagers} task managers, {overview.slots_available} free slots"
