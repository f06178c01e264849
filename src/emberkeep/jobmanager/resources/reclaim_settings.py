"""What namespaces are guaranteed, and who gives slots back for it, as the configuration says."""

from __future__ import annotations

from emberkeep.base.configuration.options.access import GUARANTEED_SLOTS, QUOTA_SLOTS
from emberkeep.base.configuration.options.slots import PREEMPTION
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.slots.reclaim.terms import Preemption, ReclaimTerms


def reclaim_terms(configuration: Configuration) -> ReclaimTerms:
    """Return the settings. Raises InvalidInput if a namespace is guaranteed more than it may have."""
    guarantees, maximum = configuration[GUARANTEED_SLOTS], configuration[QUOTA_SLOTS]
    for namespace, count in guarantees.items():
        if maximum and count > maximum:
            raise InvalidInput(
                f"{GUARANTEED_SLOTS.key}: namespace {namespace!r} is guaranteed {count} slots, and may have "
                f"{maximum} at most ({QUOTA_SLOTS.key})",
                field=GUARANTEED_SLOTS.key,
                hint=f"lower the guarantee, or raise {QUOTA_SLOTS.key}",
            )
    return ReclaimTerms(guarantees=guarantees, maximum=maximum, preemption=Preemption(configuration[PREEMPTION]))
