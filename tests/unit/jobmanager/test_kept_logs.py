"""Pieces of logs that task managers send to the leader."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.errors import Absent, Conflict, RetryLater
from emberkeep.base.ids import InstanceId, JobId
from emberkeep.kept_logs.model import KeptLogKey, LogPiece, Position
from emberkeep.protocol.messages.logs import KeepLog, LogKept
from tests.support.kept_logs.pieces import piece
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeTaskManager, graph
from tests.unit.jobmanager.memory_store import FailingStore

JOB = graph(1).job_id


class Logs:
    """Implements LogStore."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, KeptLogKey, LogPiece]] = []

    async def keep(self, epoch: int, key: KeptLogKey, piece: LogPiece) -> Position:
        self.kept.append((epoch, key, piece))
        return Position(end=piece.header.end)


def request(task_manager: FakeTaskManager) -> KeepLog:
    info = task_manager.info
    return KeepLog(
        task_manager=info.id,
        instance=info.instance,
        job_id=JOB,
        attempt=1,
        name="driver.stderr",
        piece=piece(0, b"one\n"),
    )


def test_a_piece_of_a_known_job_is_stored_in_the_name_of_the_leader() -> None:
    async def scenario() -> None:
        logs = Logs()
        cluster = SmallCluster(FailingStore(), logs=logs)
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            await service.gateway.submit(graph(1))

            reply = await service.serve(request(task_manager))

            assert reply == LogKept(position=Position(end=4))
            key = KeptLogKey(job_id=JOB, attempt=1, task_manager=task_manager.info.id, name="driver.stderr")
            assert logs.kept == [(service.gateway.epoch(), key, piece(0, b"one\n"))]

    in_virtual_time(scenario)


def test_what_is_not_stored() -> None:
    async def scenario() -> None:
        logs = Logs()
        cluster = SmallCluster(FailingStore(), logs=logs)
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            with pytest.raises(Absent):
                await service.serve(request(task_manager))

            await service.gateway.submit(graph(1))
            sent = request(task_manager)
            with pytest.raises(Conflict):
                await service.serve(msgspec.structs.replace(sent, instance=InstanceId("an earlier process")))
            with pytest.raises(RetryLater):
                await service.serve(msgspec.structs.replace(sent, task_manager="tm-9"))
            with pytest.raises(Absent):
                await service.serve(msgspec.structs.replace(sent, job_id=JobId("9" * 32)))
            service.pause()
            with pytest.raises(RetryLater):
                await service.serve(sent)
            service.resume()

            assert logs.kept == []

    in_virtual_time(scenario)


def test_a_cluster_that_keeps_no_logs_says_so() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading() as service:
            task_manager = await cluster.add()
            await service.gateway.submit(graph(1))

            with pytest.raises(Conflict, match="keeps no logs"):
                await service.serve(request(task_manager))

    in_virtual_time(scenario)
