"""The invariants of the slot manager's accounts. They hold between any two events."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from emberkeep.base.ids import AllocationId, JobId, TaskManagerId
from emberkeep.slots.ledger import JobAccount, Member


def check(
    members: Mapping[TaskManagerId, Member],
    jobs: Mapping[JobId, JobAccount],
    pending: AbstractSet[AllocationId],
) -> None:
    """Raise AssertionError naming the broken invariant."""
    in_members = {allocation_id for member in members.values() for allocation_id in member.pending}
    _hold(in_members == pending, "pending slots are not those of the task managers")
    for member in members.values():
        _check_member(member, jobs)
    for job in jobs.values():
        _check_job(job, members)


def _check_member(member: Member, jobs: Mapping[JobId, JobAccount]) -> None:
    where = member.info.id
    _hold(not set(member.pending) & set(member.allocations), f"{where}: a slot is both pending and reported")
    _hold(not (member.is_blocked and member.pending), f"{where}: blocked, with a pending slot")
    closed = member.is_blocked or member.is_leaving or member.away
    _hold(not (closed and member.kept), f"{where}: keeps slots for jobs that restart, and takes nothing new")
    _hold(not set(member.kept) & {*member.allocations, *member.pending}, f"{where}: a slot is both kept and taken")
    for allocation in member.kept.values():
        job = jobs.get(allocation.job_id)
        known = job is not None and job.kept.get(allocation.id) is member
        _hold(known, f"{where}: keeps slot {allocation.id} for no job that restarts")
    _hold(not (member.is_leaving and member.pending), f"{where}: about to end, with a pending slot")
    for job_id, reserved in member.reservations.items():
        job = jobs.get(job_id)
        _hold(
            job is not None and job.reserved_on is member,
            f"{where}: reserved for {job_id}, whose account says otherwise",
        )
        ordered = job is not None and job.attempt >= reserved.attempt
        _hold(
            ordered or not member.is_blocked,
            f"{where}: blocked, with a place for the driver of {job_id}, which was not ordered",
        )
    for driver in member.drivers:
        reservation = member.reservations.get(driver.job_id)
        shown = reservation is not None and driver.attempt >= reservation.attempt
        _hold(not shown, f"{where}: still reserved for the driver of {driver.job_id}, which a report lists")
    for allocation in member.pending.values():
        job = jobs.get(allocation.job_id)
        known = job is not None and job.attempt == allocation.attempt and allocation.id in job.held
        _hold(known, f"{where}: pending slot {allocation.id} belongs to no current attempt")
    free = _free(member)
    member.recount()
    again = _free(member)
    _hold(free == again, f"{where}: the counts of free resources are {free}, and must be {again}")
    _hold(member.level == member.usable_level(), f"{where}: on the wrong level")
    _hold(
        not (member.away and (member.pending or member.reservations)),
        f"{where}: away, with a pending slot or a reservation",
    )


def _free(member: Member) -> tuple[object, ...]:
    return member.free_slots, member.free_cores, member.free_memory, member.free_places, member.free_custom


def _check_job(job: JobAccount, members: Mapping[TaskManagerId, Member]) -> None:
    for allocation_id, member in job.held.items():
        _hold(
            members.get(member.info.id) is member,
            f"{job.job_id}: holds a slot on a task manager that is not registered",
        )
        there = allocation_id in member.allocations or allocation_id in member.pending
        _hold(there, f"{job.job_id}: holds {allocation_id}, which its task manager lacks")
    _hold(sum(job.held_by_profile.values()) == len(job.held), f"{job.job_id}: wrong counts by size")
    _hold(sum(job.spread.values()) == len(job.held), f"{job.job_id}: wrong counts by task manager")
    _hold(not (job.over and job.held), f"{job.job_id}: an attempt that is over holds slots")


def _hold(truth: bool, otherwise: str) -> None:
    if not truth:
        raise AssertionError(f"slot manager: {otherwise}")
