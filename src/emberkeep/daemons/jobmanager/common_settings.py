"""The settings that a leader's start records, so that the next leader can say what has changed."""

from __future__ import annotations

from typing import Final

from emberkeep.base.configuration.options.blobs import BLOB_DIRECTORY
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY, WORKING_DIRECTORY
from emberkeep.base.configuration.options.job_managers import JOB_MANAGER_ID
from emberkeep.base.configuration.options.security import TOKEN_FILE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.redaction import redacted

# Options that differ between the JobManagers of one cluster, because they name this process or its machine.
_OWN_KEYS: Final = frozenset(
    option.key for option in (BLOB_DIRECTORY, JOB_MANAGER_ID, STATE_DIRECTORY, TOKEN_FILE, WORKING_DIRECTORY)
)
_OWN_PREFIXES: Final = ("rest.", "security.tls.", "taskmanager.")


def common_settings(configuration: Configuration) -> dict[str, str]:
    """Return the options that are set and should be the same for all JobManagers. Secret values are hidden."""
    return redacted(
        {
            key: text
            for key, text in configuration.texts().items()
            if key not in _OWN_KEYS and not key.startswith(_OWN_PREFIXES)
        }
    )
