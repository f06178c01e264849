"""Finds the custom resources of this node: addresses from the configuration, and from discovery scripts as Spark's.

A discovery script prints ``{"name": "gpu", "addresses": ["0", "1"]}``.
"""

from __future__ import annotations

import subprocess

import msgspec

from emberkeep.base.configuration.options.task_managers import RESOURCE_ADDRESSES, RESOURCE_DISCOVERY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.slots.custom.addresses import ResourceAddresses

SCRIPT_SECONDS = 60.0
_RUNNABLE = "check its path, and that this user may run it"
_SHOWN = 300  # characters of a script's output in an error
_FAULTY = 'run it by hand as this user; it must print {{"name": "{name}", "addresses": ["0"]}}'


class _Printed(msgspec.Struct, frozen=True):
    name: str
    addresses: tuple[str, ...]


def offered_addresses(configuration: Configuration) -> tuple[ResourceAddresses, ...]:
    """Return the addresses of this node's custom resources, sorted by name. Run the discovery scripts. Blocks.

    Raises InvalidInput (a resource that is configured twice), Fatal (a script that fails, naming it).
    """
    addresses, scripts = configuration[RESOURCE_ADDRESSES], configuration[RESOURCE_DISCOVERY]
    for name in sorted(addresses.keys() & scripts.keys()):
        raise InvalidInput(
            f"resource {name} is in both {RESOURCE_ADDRESSES.key} and {RESOURCE_DISCOVERY.key}",
            field=RESOURCE_DISCOVERY.key,
            hint="name each resource in one of them",
        )
    found = {**addresses, **{name: _discover(name, scripts[name]) for name in sorted(scripts)}}
    return tuple(ResourceAddresses(name=name, addresses=found[name]) for name in sorted(found) if found[name])


def _discover(name: str, script: str) -> tuple[str, ...]:
    what, hint = f"the discovery script {script} of resource {name}", _FAULTY.format(name=name)
    try:
        done = subprocess.run([script], capture_output=True, check=False, timeout=SCRIPT_SECONDS)
    except subprocess.TimeoutExpired:
        raise Fatal(f"{what} has not ended within {SCRIPT_SECONDS:g} s", hint=hint) from None
    except OSError as error:
        raise Fatal(f"{what} cannot be run: {error.strerror}", hint=_RUNNABLE) from None
    if done.returncode != 0:
        raise Fatal(f"{what} ended with exit code {done.returncode}: {_shown(done.stderr or done.stdout)}", hint=hint)
    try:
        printed = msgspec.json.decode(done.stdout, type=_Printed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Fatal(f"{what} printed no resource: {_shown(done.stdout)}", hint=hint) from None
    if printed.name != name:
        raise Fatal(f"{what} printed resource {printed.name!r}", hint=hint)
    if len(set(printed.addresses)) != len(printed.addresses):
        raise Fatal(f"{what} printed an address twice: {_shown(done.stdout)}", hint=hint)
    return printed.addresses


def _shown(output: bytes) -> str:
    return repr(output.decode("utf-8", "replace").strip()[:_SHOWN])
