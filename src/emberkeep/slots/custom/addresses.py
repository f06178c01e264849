"""The addresses of custom resources on one task manager, each of which at most one process has at a time."""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.base.compatible import Compatible
from emberkeep.slots.custom.amounts import Amounts, amounts, total


class ResourceAddresses(Compatible, frozen=True, kw_only=True):
    """Addresses of one custom resource, such as the indices of GPUs."""

    name: str
    addresses: tuple[str, ...]


def amounts_of(offered: Iterable[ResourceAddresses]) -> Amounts:
    """Return how many addresses there are of each resource, also of one that occurs several times."""
    return total(amounts({each.name: len(each.addresses)}) for each in offered)


def choose(
    offered: Iterable[ResourceAddresses], taken: Iterable[ResourceAddresses], wanted: Amounts
) -> tuple[ResourceAddresses, ...]:
    """Return the first ``wanted`` addresses that are offered and not taken. The caller has checked their number."""
    used = {(each.name, address) for each in taken for address in each.addresses}
    free = {each.name: [address for address in each.addresses if (each.name, address) not in used] for each in offered}
    return tuple(
        ResourceAddresses(name=one.name, addresses=tuple(free.get(one.name, ())[: one.amount])) for one in wanted
    )


def shared(held: Iterable[ResourceAddresses]) -> bool:
    """True if an address occurs twice."""
    all_held = [(each.name, address) for each in held for address in each.addresses]
    return len(all_held) != len(set(all_held))
