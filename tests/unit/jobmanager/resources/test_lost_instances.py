"""Which lost task manager instances a job still has to learn of."""

from __future__ import annotations

from emberkeep.base.ids import InstanceId, JobId
from emberkeep.jobmanager.resources.lost_instances import LOST_KEPT, LostInstances

JOB, OTHER = JobId("1" * 32), JobId("2" * 32)


def instance(number: int) -> InstanceId:
    return InstanceId(f"tm/{number}")


def test_the_oldest_losses_are_dropped() -> None:
    lost = LostInstances()
    for number in range(LOST_KEPT + 2):
        lost.add(JOB, instance(number))
    assert lost.of(JOB) == tuple(instance(number) for number in range(2, LOST_KEPT + 2))


def test_an_instance_that_registers_again_is_lost_to_no_job() -> None:
    lost = LostInstances()
    for job_id in (JOB, OTHER):
        lost.add(job_id, instance(1))
    lost.add(OTHER, instance(2))
    lost.returned(instance(1))
    assert (lost.of(JOB), lost.of(OTHER)) == ((), (instance(2),))


def test_a_next_attempt_has_lost_nothing() -> None:
    lost = LostInstances()
    lost.add(JOB, instance(1))
    lost.add(OTHER, instance(1))
    lost.forget(JOB)
    assert (lost.of(JOB), lost.of(OTHER)) == ((), (instance(1),))
