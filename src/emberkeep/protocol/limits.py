"""Upper bounds of what crosses a process boundary. Both sides check them: an error comes before the memory is gone."""

from __future__ import annotations

SUBMISSION_BYTES = 256 * 1024**2  # one off-loaded submission
RPC_MESSAGE_BYTES = 320 * 1024**2  # one request or reply with all its parts; the largest is StartDriver: a job graph
RPC_INLINE_SLACK = 256 * 1024  # what a body may have beyond rpc.offload.min-size: references, or an error's texts
ERROR_TEXT_CHARACTERS = 16 * 1024  # message, hint and field of an error that travels to a caller, each
LEFT_JOBS = 256  # jobs that a TaskManager asks about in one report: whether what it keeps of them can go
SEEN_JOBS = 1_000  # jobs whose newest attempt a TaskManager tells with its registration
LOCAL_STATE_JOBS = 256  # jobs whose local state a TaskManager reports: those with the most of it
