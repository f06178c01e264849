"""What started task managers get from their JobManager: its settings in a file, and its environment without them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from emberkeep.adapters.zookeeper.access.signatures import UnsignedRecords
from emberkeep.base.configuration.options.blobs import BLOB_DIRECTORY
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY, WORKING_DIRECTORY
from emberkeep.base.configuration.options.high_availability import ZOOKEEPER_RECORDS
from emberkeep.base.configuration.options.job_managers import JOB_MANAGER_ADDRESS, JOB_MANAGER_ID
from emberkeep.base.configuration.options.local_state import LOCAL_STATE_DIRECTORY
from emberkeep.base.configuration.options.security import TOKEN_FILE
from emberkeep.base.configuration.options.task_managers import (
    RESOURCE_ADDRESSES,
    RESOURCE_DISCOVERY,
    TASK_MANAGER_BIND_PORT,
    TASK_MANAGER_HOST,
    TASK_MANAGER_ID,
    TASK_MANAGER_NODE,
    TASK_MANAGER_PORT,
)
from emberkeep.base.configuration.sources import CONFIG_FILE_VARIABLE, environment_variable
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.configuration.values import options as all_options
from emberkeep.base.errors import Fatal
from emberkeep.base.files.durable import write_file
from emberkeep.base.files.private import make_private

# Options of the JobManager itself, or of a single task manager.
_NOT_HANDED_ON = (
    BLOB_DIRECTORY,
    JOB_MANAGER_ADDRESS,
    JOB_MANAGER_ID,
    LOCAL_STATE_DIRECTORY,
    STATE_DIRECTORY,
    TASK_MANAGER_BIND_PORT,
    TASK_MANAGER_HOST,
    TASK_MANAGER_ID,
    TASK_MANAGER_NODE,
    TASK_MANAGER_PORT,
    TOKEN_FILE,
    WORKING_DIRECTORY,
)
_OF_ONE_MACHINE = (RESOURCE_ADDRESSES, RESOURCE_DISCOVERY)  # no two may offer the same GPU


def write_settings(directory: Path, configuration: Configuration, *, same_machine: bool = False) -> Path:
    """Write the settings of the task managers to ``directory``, and return the file. Blocks.

    They are in a file because other users can read the arguments of a process. ``same_machine``: all run on this one.
    Raises Fatal.
    """
    try:
        make_private(directory)
    except OSError as error:
        raise Fatal(f"cannot use {directory}: {error.strerror}", hint="check its permissions") from error
    private = {option.key for option in (*_NOT_HANDED_ON, *(_OF_ONE_MACHINE if same_machine else ()))}
    texts = {key: text for key, text in configuration.texts().items() if key not in private}
    if texts.get(ZOOKEEPER_RECORDS.key) == UnsignedRecords.SIGN.value:
        del texts[ZOOKEEPER_RECORDS.key]  # only leaders sign; others must not trust what is unsigned
    path = directory / "taskmanager.yaml"
    write_file(path, yaml.safe_dump(texts, default_style='"').encode())
    return path


def environment_handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Emberkeep's settings, which are in the settings file."""
    settings = {CONFIG_FILE_VARIABLE, *(environment_variable(option.key) for option in all_options())}
    return {name: value for name, value in environ.items() if name not in settings}
