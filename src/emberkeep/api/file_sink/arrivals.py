"""Classifies an arriving batch: the next one, a repeated one, or one that contradicts the output. Pure."""

from __future__ import annotations

import msgspec

from emberkeep.api.file_sink.errors import (
    BatchesMissing,
    OutputIsAhead,
    OutputOfAnotherQuery,
    OutputUnavailable,
    SinkFenced,
)
from emberkeep.api.file_sink.model import NOTHING_YET, Piece, SinkState, SinkWriter

_REMEMBERED_PLANS = 100  # Spark keeps this many batches in its logs (spark.sql.streaming.minBatchesToRetain)


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A micro-batch as foreachBatch gives it. ``plan``: digest of its entry in the query's offset log.

    ``committed_before``: the newest batch that earlier attempts of this job are known to have committed.
    """

    query: str
    checkpoint: str
    batch: int
    plan: str
    committed_before: int = NOTHING_YET


def claimed(state: SinkState | None, owner: SinkWriter, first_growth: float, output: str) -> SinkState:
    """Return the state with which ``owner`` begins to write. Raises SinkFenced for an attempt that was superseded."""
    if state is None:
        return SinkState(owner=owner, growth=first_growth)
    before = state.owner
    if owner.job_id and before.job_id == owner.job_id and before.attempt > owner.attempt:
        raise SinkFenced(
            f"attempt {before.attempt} of job {owner.job_id} already writes to {output}; this is attempt "
            f"{owner.attempt}",
            hint="this attempt was superseded and ends",
        )
    return msgspec.structs.replace(state, owner=owner)


def received(state: SinkState, arrival: Arrival, output: str, adopted: str = "") -> SinkState | None:
    """Return the state in which this batch is the next one to write; None if its rows are in the output already.

    ``adopted``: id of the other query that wrote the output before, if this query continues it. Raises
    OutputOfAnotherQuery, OutputIsAhead, BatchesMissing, OutputUnavailable.
    """
    if not state.query and arrival.committed_before > NOTHING_YET:
        raise OutputUnavailable(
            f"earlier attempts of this job have written batches up to {arrival.committed_before} to {output}, but "
            "the output has none of them now",
            hint="check that its file system is mounted; if you removed the output and its work directory on "
            "purpose, submit the job again",
        )
    if state.query not in ("", arrival.query):
        if adopted != state.query:
            raise OutputOfAnotherQuery(
                f"{output} has batches of the query {state.query} up to {state.last_batch}; another query, "
                f"{arrival.query}, now writes its batch {arrival.batch} there",
                hint="start the query from the checkpoint or a savepoint that belongs to this output, or give it "
                f"an empty output; if the new query continues the rows of the old one, set adopt={state.query!r}",
            )
        state = _numbered_again(state)
    state = msgspec.structs.replace(state, query=arrival.query, checkpoint=arrival.checkpoint)
    if state.last_batch == NOTHING_YET or arrival.batch == state.last_batch + 1:
        return state
    if arrival.batch > state.last_batch + 1:
        raise BatchesMissing(
            f"the next batch for {output} is {arrival.batch}, but its newest batch is {state.last_batch}: the rows "
            "of the batches in between are missing",
            hint="if an older copy of the output was restored, start from a savepoint of that time",
        )
    if arrival.plan == state.plans.get(str(arrival.batch)):
        return None
    return _gone_back(state, arrival, output)


def written(state: SinkState, arrival: Arrival, pieces: tuple[Piece, ...], schema: tuple[str, str]) -> SinkState:
    """Return the state after the batch's pieces are complete. ``schema``: key and text of the pieces' schema."""
    plans = {**state.plans, str(arrival.batch): arrival.plan}
    oldest = arrival.batch - _REMEMBERED_PLANS
    everything = (*state.pieces, *pieces)
    schemas = {**state.schemas, schema[0]: schema[1]}
    used = {piece.schema for piece in everything}
    return msgspec.structs.replace(
        state,
        last_batch=arrival.batch,
        plans={batch: plan for batch, plan in plans.items() if int(batch) > oldest},
        schemas={key: text for key, text in schemas.items() if key in used},
        pieces=everything,
    )


def _numbered_again(state: SinkState) -> SinkState:
    """Return the state in which another query's rows count as written before the first batch of this query."""
    pieces = (msgspec.structs.replace(piece, first=NOTHING_YET, last=NOTHING_YET) for piece in state.pieces)
    return msgspec.structs.replace(state, plans={}, last_batch=NOTHING_YET, shown=NOTHING_YET, pieces=tuple(pieces))


def _gone_back(state: SinkState, arrival: Arrival, output: str) -> SinkState:
    """Return the state without the batches from this number on, because the number now belongs to another batch.

    Raises OutputIsAhead if a row of these batches may have been visible, or a piece also has rows of earlier batches.
    """
    mixed = any(piece.first < arrival.batch <= piece.last for piece in state.pieces)
    if mixed or state.shown >= arrival.batch:
        raise OutputIsAhead(
            f"batch {arrival.batch} has other rows than the batch {arrival.batch} that {output} has, which contains "
            f"rows up to batch {max(state.shown, arrival.batch)}: the query was started from an older checkpoint or "
            "savepoint than this output. Writing the batch would repeat rows, and skipping it would lose rows",
            hint="start from the newest savepoint or checkpoint of this query, or give this run an empty output",
        )
    return msgspec.structs.replace(
        state,
        last_batch=arrival.batch - 1,
        plans={batch: plan for batch, plan in state.plans.items() if int(batch) < arrival.batch},
        pieces=tuple(piece for piece in state.pieces if piece.last < arrival.batch),
    )
