"""Say what a command has asked of the cluster when Ctrl-C ends the command: the cluster goes on without it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from emberkeep.cli.cluster_options import with_client
from emberkeep.cli.messages import say

if TYPE_CHECKING:
    from emberkeep.client.endpoint import Endpoint
    from emberkeep.client.rest_client import RestClient

T = TypeVar("T")


@dataclass
class Asked:
    """What a command tells whoever interrupts it.

    The command changes it before it sends a request, which may then be carried out, and once that is accepted.
    """

    text: str = "nothing was asked of the cluster"


def with_client_asking(endpoint: Endpoint, work: Callable[[RestClient, Asked], Awaitable[T]]) -> T:
    """Call ``work`` with a client of ``endpoint``, and return its result. On Ctrl-C, say what goes on."""
    asked = Asked()
    try:
        return with_client(endpoint, lambda client: work(client, asked))
    except KeyboardInterrupt:
        say(f"stopped waiting; {asked.text}")
        raise
