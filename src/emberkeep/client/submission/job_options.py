"""Sort ``-D`` keys: settings of a job, of the client (where the cluster is), and of the cluster's processes."""

from __future__ import annotations

from collections.abc import Sequence

from emberkeep.base.configuration.options.directories import STATE_DIRECTORY
from emberkeep.base.configuration.options.job_managers import REST_ADDRESS, REST_PORT
from emberkeep.base.configuration.options.jobs import GANG, PRIORITY
from emberkeep.base.configuration.options.local_state import LOCAL_RECOVERY
from emberkeep.base.configuration.options.security import TLS_CA, TOKEN_FILE
from emberkeep.base.configuration.sources import from_definitions
from emberkeep.base.configuration.values import REGISTRY, Configuration
from emberkeep.base.errors import InvalidInput

_JOB_PREFIXES = (
    "restart-strategy",
    "execution.",
    "executor.",
    "job.driver.",
    "slot.request.",
    "task.cancellation.",
    "security.spark.",
    "watchdog.",
)
# A job may turn local recovery off where the task managers have it turned on.
_JOB_KEYS = frozenset({LOCAL_RECOVERY.key, PRIORITY.key, GANG.key})
_CLIENT_KEYS = frozenset(option.key for option in (REST_ADDRESS, REST_PORT, STATE_DIRECTORY, TLS_CA, TOKEN_FILE))


def is_job_key(key: str) -> bool:
    """True if the option ``key`` may be set for a single job."""
    return key.startswith(_JOB_PREFIXES) or key in _JOB_KEYS


def job_options(definitions: Sequence[str]) -> dict[str, str]:
    """Return the ``-D`` settings of the job, under their current names. Raises InvalidInput."""
    configuration = Configuration()
    for key, text, origin in from_definitions(definitions):
        configuration = configuration.with_texts({key: text}, origin)
    return {key: text for key, text in configuration.texts().items() if is_job_key(key)}


def refuse_cluster_options(definitions: Sequence[str]) -> None:
    """Raise InvalidInput for a ``-D`` setting that a running cluster can no longer apply."""
    for key, _, _ in from_definitions(definitions):
        name = REGISTRY[key].key if key in REGISTRY else key
        if not is_job_key(name) and name not in _CLIENT_KEYS:
            raise InvalidInput(
                f"-D {key}: a setting of the cluster's processes, not of one job",
                field=key,
                hint="set it where they are started: `emberkeep cluster up -D …` or in their configuration file",
            )


def without_client_keys(definitions: Sequence[str]) -> tuple[str, ...]:
    """Return the ``-D`` settings without those that say where the cluster is."""
    return tuple(text for text in definitions if text.partition("=")[0].strip() not in _CLIENT_KEYS)
