"""The network between simulated processes: delay, loss, repetition, reordering, partition and refused connections.

Messages travel as bytes in the encoding of real processes, so a message that cannot be encoded or decoded fails here
too. The caller sees what HTTP would show: RetryLater at once if no process listens; UnknownOutcome if no reply comes in
time or the server dies in the middle; otherwise the reply, or the error that the server raised.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from emberkeep.base.errors import EmberkeepError, Fatal, IllegalTransition, RetryLater, UnknownOutcome
from emberkeep.protocol.encoding.first_release import for_first_release
from emberkeep.protocol.encoding.wire import decode_error, decode_reply, decode_request, encode_error, encode_message
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.transport import ReplyT, RpcService
from tests.support.simulator.history import History
from tests.support.simulator.releases.first_release import LATER_REQUESTS, UnknownField, check_known
from tests.support.simulator.virtual_loop import Scope, VirtualLoop

Handler = Callable[[str, bytes], Awaitable[bytes]]

REFUSAL_DELAY = 0.0005  # seconds until "connection refused"


@dataclass(frozen=True, eq=False)
class Party:
    """A process as the network sees it."""

    name: str
    node: str
    scope: Scope
    old: bool = False  # of release 0.1.0


@dataclass
class Conditions:
    """Quality of the network. Probabilities are per message; times are in seconds."""

    delay_min: float = 0.0002
    delay_mean: float = 0.004  # mean of the exponential part
    slow: float = 0.0  # probability that a message takes up to slow_max longer
    slow_max: float = 5.0
    loss: float = 0.0  # probability that a request or a reply is lost
    repeat: float = 0.0  # probability that a request arrives a second time
    repeat_max: float = 8.0  # longest delay of the second arrival


@dataclass(frozen=True)
class _Refusal:
    """An encoded error."""

    data: bytes


Answer = bytes | _Refusal


@dataclass(eq=False)
class Listener:
    """The process that answers at an address."""

    party: Party
    handle: Handler


@dataclass(eq=False)
class _Exchange:
    number: int
    source: Party
    address: str
    operation: str
    data: bytes
    answer: asyncio.Future[bytes]


class SimNetwork:
    """All connections of one simulation. A *place* in a cut is the name of a node or of a process."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, history: History) -> None:
        self.conditions = Conditions()
        self.closed = False
        self.on_served: list[Callable[[Party, str, float, str], None]] = []  # source, operation, when it came, error
        self._loop = loop
        self._rng = rng
        self._history = history
        self._neutral = contextvars.Context()  # transport callbacks belong to no process
        self._numbers = itertools.count(1)
        self._listeners: dict[str, Listener] = {}
        self._nodes: dict[str, str] = {}  # host → node
        self._nodes_down: set[str] = set()
        self._cuts: dict[tuple[str, str], int] = {}
        self._serving: dict[int, tuple[_Exchange, Listener]] = {}

    # --- wiring -----------------------------------------------------------------------------------------------------

    def add_host(self, host: str, node: str) -> None:
        """Record that host address ``host`` is on ``node``."""
        self._nodes[host] = node

    def listen(self, address: str, party: Party, handle: Handler) -> None:
        """Let a process answer at an address. Raises Fatal if another process does."""
        known = self._listeners.get(address)
        if known is not None and known.party is not party:
            raise Fatal(f"{address} is in use by {known.party.name}")
        self._listeners[address] = Listener(party, handle)

    def hand_over(self, address: str, to: Listener | None = None) -> Listener | None:
        """Give an address to listener ``to``, or to none. Return its previous listener."""
        known = self._listeners.pop(address, None)
        if to is not None:
            self._listeners[address] = to
        return known

    def listen_rpc(self, address: str, party: Party, service: RpcService) -> None:
        """Let a process answer RPCs at an address."""
        self.listen(address, party, rpc_handler(service))

    def is_old(self, address: str) -> bool:
        """True if a process of release 0.1.0 answers at an address."""
        listener = self._listeners.get(address)
        return listener is not None and listener.party.old

    def client(self, party: Party) -> SimRpcClient:
        """Return the RpcClient of one process."""
        return SimRpcClient(self, party)

    def process_died(self, party: Party) -> None:
        """Close the connections of a dead process: callers that wait for its reply get UnknownOutcome."""
        for address in [address for address, listener in self._listeners.items() if listener.party is party]:
            del self._listeners[address]
        for exchange, listener in list(self._serving.values()):
            if listener.party is party:
                del self._serving[exchange.number]
                broken = UnknownOutcome(f"{exchange.operation} to {exchange.address}: the connection broke")
                self._return(exchange, party, _Refusal(encode_error(broken)))

    # --- faults -----------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Drop all messages from place ``source`` to place ``target``. Cuts add up."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def mend(self, source: str, target: str) -> None:
        """Undo one cut."""
        left = self._cuts.get((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left
        else:
            self._cuts.pop((source, target), None)

    def node_down(self, node: str) -> None:
        """Make a node unreachable, as a machine that is off: senders are not notified."""
        self._nodes_down.add(node)

    def node_up(self, node: str) -> None:
        self._nodes_down.discard(node)

    def heal(self) -> None:
        """Undo all cuts and bad conditions. Nodes that are down stay down."""
        self._cuts.clear()
        self.conditions = Conditions()

    @property
    def is_cut(self) -> bool:
        """True if messages between some places are dropped."""
        return bool(self._cuts)

    def passes(self, source: Party, target: Party) -> bool:
        """True if a message from one process can reach the other now."""
        return self._passes(source.name, source.node, target.name, target.node)

    def _passes(self, source: str, source_node: str, target: str, target_node: str) -> bool:
        if self._nodes_down and (source_node in self._nodes_down or target_node in self._nodes_down):
            return False
        if not self._cuts:
            return True
        pairs = ((source, target), (source, target_node), (source_node, target), (source_node, target_node))
        return not any(pair in self._cuts for pair in pairs)

    # --- one exchange -----------------------------------------------------------------------------------------------

    async def exchange(self, source: Party, address: str, operation: str, data: bytes, seconds: float) -> bytes:
        """Send a request and return the reply's bytes within ``seconds``. Raises what the module describes."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        if self.closed:
            return await answer  # the run is over: this task is about to be cancelled
        exchange = _Exchange(next(self._numbers), source, address, operation, data, answer)
        self._send(exchange)
        self._history.step(source.name, f"sends {operation}")
        timer = self._loop.call_later(seconds, self._expire, exchange, context=self._neutral)
        try:
            return await answer
        finally:
            timer.cancel()

    def _later(self, delay: float, callback: Callable[..., None], *arguments: object) -> None:
        self._loop.call_later(delay, callback, *arguments, context=self._neutral)

    def _delay(self) -> float:
        conditions, rng = self.conditions, self._rng
        delay = conditions.delay_min + rng.expovariate(1.0) * conditions.delay_mean
        if conditions.slow and rng.random() < conditions.slow:
            delay += rng.uniform(0.0, conditions.slow_max)
        return delay

    def _is_lost(self) -> bool:
        return self.conditions.loss > 0 and self._rng.random() < self.conditions.loss

    def _send(self, exchange: _Exchange) -> None:
        if self._is_lost():
            self._history.count("request lost")
            return
        delay = self._delay()
        self._later(delay, self._arrive, exchange)

    def _arrive(self, exchange: _Exchange) -> None:
        listener = self._listeners.get(exchange.address)
        source = exchange.source
        if listener is not None:
            passes = self.passes(source, listener.party)
        else:
            node = self._nodes.get(exchange.address.rpartition(":")[0], exchange.address)
            passes = self._passes(source.name, source.node, exchange.address, node)
        if not passes:
            self._history.count("request cut off")
        elif listener is None:
            refused = RetryLater(f"nobody listens at {exchange.address}", hint="the process is down or starting")
            self._later(REFUSAL_DELAY, self._finish, exchange, _Refusal(encode_error(refused)))
        else:
            self._serve(exchange, listener)
            if self.conditions.repeat and self._rng.random() < self.conditions.repeat:
                self._later(self._rng.uniform(0.0, self.conditions.repeat_max), self._repeat, exchange, listener)

    def _repeat(self, exchange: _Exchange, listener: Listener) -> None:
        # A connection belongs to one process of the server: the next process does not receive the repetition.
        if listener.party.scope.alive and self.passes(exchange.source, listener.party):
            self._history.count("request repeated")
            self._serve(exchange, listener)

    def _serve(self, exchange: _Exchange, listener: Listener) -> None:
        self._history.add(listener.party.name, f"< {exchange.operation} from {exchange.source.name}", routine=True)
        self._serving[exchange.number] = (exchange, listener)
        self._history.step(listener.party.name, f"receives {exchange.operation}")
        serving = listener.party.scope.spawn(self._run_handler(exchange, listener), exchange.operation)
        serving.add_done_callback(self._served, context=self._neutral)

    async def _run_handler(self, exchange: _Exchange, listener: Listener) -> None:
        reply: Answer
        failed, received = "", self._loop.time()
        try:
            if listener.party.old:
                self._history.judged("j")
                check_known(exchange.operation, exchange.data)
            reply = await listener.handle(exchange.operation, exchange.data)
        except EmberkeepError as error:
            reply = _Refusal(encode_error(error))
            failed = type(error).__name__
            self._history.count(f"{exchange.operation} refused: {failed}")
            if isinstance(error, UnknownField):
                self._history.violate("j", f"{listener.party.name}: {error}")
            if isinstance(error, IllegalTransition):
                self._history.violate("bug", f"{listener.party.name}: {error}")
            self._history.add(
                listener.party.name, f"refuses {exchange.operation} of {exchange.source.name}: {error}", routine=True
            )
        self._serving.pop(exchange.number, None)
        for told in self.on_served:
            told(exchange.source, exchange.operation, received, failed)
        self._return(exchange, listener.party, reply)
        self._history.step(listener.party.name, f"has answered {exchange.operation}")

    def _served(self, serving: asyncio.Task[None]) -> None:
        if not serving.cancelled() and serving.exception() is not None:
            self._history.violate("bug", f"{serving.get_name()} raised {serving.exception()!r}")

    def _return(self, exchange: _Exchange, server: Party, reply: Answer) -> None:
        if self._is_lost():
            self._history.count("reply lost")
        else:
            self._later(self._delay(), self._come_back, exchange, server, reply)

    def _come_back(self, exchange: _Exchange, server: Party, reply: Answer) -> None:
        if self.passes(server, exchange.source):
            self._finish(exchange, reply)
        else:
            self._history.count("reply cut off")

    def _finish(self, exchange: _Exchange, reply: Answer) -> None:
        if exchange.answer.done():
            return
        if isinstance(reply, bytes):
            exchange.answer.set_result(reply)
        else:
            exchange.answer.set_exception(decode_error(reply.data, sender=exchange.address))

    def _expire(self, exchange: _Exchange) -> None:
        if not exchange.answer.done():
            self._history.count("no answer in time")
            exchange.answer.set_exception(
                UnknownOutcome(f"{exchange.operation}: no answer from {exchange.address} in time")
            )


def rpc_handler(service: RpcService) -> Handler:
    """Return a handler that passes incoming RPCs to ``service``."""

    async def handle(operation: str, data: bytes) -> bytes:
        return encode_message(await service.serve(decode_request(operation, data)))

    return handle


class SimRpcClient:
    """The RpcClient port over a SimNetwork."""

    def __init__(self, network: SimNetwork, party: Party) -> None:
        self._network = network
        self._party = party

    async def call(self, address: str, request: Message, reply: type[ReplyT], *, timeout: float) -> ReplyT:  # noqa: ASYNC109
        """Send ``request`` and return its reply, as RpcClient defines."""
        kind = type(request).__name__
        if not (self._party.old or self._network.is_old(address)):
            data = await self._network.exchange(self._party, address, kind, encode_message(request), timeout)
            return decode_reply(data, reply, sender=address)
        if self._party.old and kind in LATER_REQUESTS:
            raise RetryLater(f"release 0.1.0 sends no {kind}")
        sent = encode_message(for_first_release(request))
        data = await self._network.exchange(self._party, address, kind, sent, timeout)
        return for_first_release(decode_reply(data, reply, sender=address))
