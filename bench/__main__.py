"""``python -m bench [--only NAME,…] [--repetitions N] [--quick]``: measure, print tables, write JSON."""

from __future__ import annotations

import argparse
import datetime
import logging
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import structlog

from bench.blobs import encrypted, transfers
from bench.control_plane import (
    blocklist,
    calm,
    console,
    heartbeats,
    limits,
    scale,
    slot_manager,
    submission,
    takeover,
    takeover_real,
    zookeeper,
)
from bench.machine import load_average, machine
from bench.measure import Figure
from bench.plan import Plan, say
from bench.report import Section, print_tables, write_json
from bench.spark import evacuation, savepoints, sink, stop, throughput
from bench.starts import flink, losses, recovery, startup
from bench.state import gateway, local, placement, stores

MEASUREMENTS: dict[str, Callable[[Plan], list[Figure]]] = {
    "startup": startup.measure,
    "start": recovery.measure_start,
    "recovery": recovery.measure_recovery,
    "standby-costs": losses.measure_costs,
    "executor-loss": losses.measure_executor,
    "node-loss": losses.measure_node,
    "flink": flink.measure,
    "console": console.measure,
    "throughput": throughput.measure,
    "submission": submission.measure,
    "slot-manager": slot_manager.measure,
    "scale": scale.measure,
    "limits": limits.measure,
    "sink": sink.measure,
    "stop": stop.measure,
    "savepoints": savepoints.measure,
    "blocklist": blocklist.measure,
    "evacuation": evacuation.measure,
    "heartbeats": heartbeats.measure,
    "takeover": takeover.measure,
    "calm": calm.measure,
    "takeover-real": takeover_real.measure,
    "zookeeper": zookeeper.measure,
    "blobs": transfers.measure,
    "encrypted-blobs": encrypted.measure,
    "state-gateway": gateway.measure,
    "state-stores": stores.measure,
    "local-state": local.measure,
    "local-state-large": local.measure_large,
    "local-state-cost": local.measure_cost,
    "placement": placement.measure,
}
RESULTS = Path(__file__).parent / "results"
_EXIT_INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0 measured (whether goals are met or not), 130 interrupted: what was finished is kept."""
    given = _parser().parse_args(arguments)
    plan = Plan(given.repetitions or (1 if given.quick else 3), given.quick)
    # A shell starts commands in the background with Ctrl-C ignored, and they would ignore what ``_interrupt`` raises.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    # Parts of Emberkeep that run in here would tell what goes wrong on purpose.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    facts = machine()
    path = RESULTS / f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H%M%SZ}.json"
    sections: list[Section] = []
    try:
        for name in given.only:
            before, begin = load_average(), time.monotonic()
            figures = MEASUREMENTS[name](plan)
            sections.append(Section(name, figures, time.monotonic() - begin, before, load_average()))
            write_json(path, sections, facts, plan.repetitions)  # whatever ends the next measurement
    except KeyboardInterrupt:
        say("interrupted: only what was finished is written" if sections else "interrupted: nothing is written")
        return _EXIT_INTERRUPTED
    finally:
        if sections:
            print_tables(sections, facts)
            say(f"written to {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Emberkeep on this machine.")
    parser.add_argument(
        "--only", type=_names, default=list(MEASUREMENTS), metavar="NAME,…", help=f"some of {', '.join(MEASUREMENTS)}"
    )
    parser.add_argument("--repetitions", type=_positive, metavar="N", help="samples per figure (default 3)")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes and one sample, to check that the measurements run"
    )
    return parser


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: unknown; choose from {', '.join(MEASUREMENTS)}")
    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of repetitions")
    return int(text)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends what was started, as Ctrl-C does: asyncio has it cancel the measurement, which then cleans up."""
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
