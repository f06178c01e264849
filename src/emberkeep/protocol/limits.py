"""Upper bounds for data that crosses a process boundary.

Both sides check them, so that oversized data causes an error rather than exhausted memory.
"""

from __future__ import annotations

SUBMISSION_BYTES = 256 * 1024**2  # one off-loaded submission
RPC_MESSAGE_BYTES = 320 * 1024**2  # one request or reply with all its parts; the largest is StartDriver (job graph)
RPC_INLINE_SLACK = 256 * 1024  # extra bytes of a body beyond rpc.offload.min-size: references, or an error's texts
ERROR_TEXT_CHARACTERS = 16 * 1024  # each of message, hint and field of an error that is sent to a caller
SPARK_UI_BYTES = 16 * 1024**2  # one page of a Spark UI, or the first piece of a larger one
SPARK_UI_PIECE_BYTES = 1024**2  # each further piece; Spark waits until a client has taken it
SPARK_UI_PAGE_BYTES = 1024**3  # all pieces of a page
LEFT_JOBS = 256  # jobs in one TaskManager report for which it asks whether their remaining data can be deleted
SEEN_JOBS = 1_000  # jobs whose newest attempt a TaskManager reports at its registration
RESERVED_GRAPHS = 4  # reserved standbys that come with their job graphs in one heartbeat reply
RESERVED_CHECKPOINTS = 64  # checkpoint locations of a job that come with its reserved standby
LOCAL_STATE_JOBS = 256  # jobs whose local state a TaskManager reports: those with the most
