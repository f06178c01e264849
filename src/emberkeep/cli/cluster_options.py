"""Options of all commands that talk to a cluster: load the settings, find the cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Group, Parameter

from emberkeep.base.errors import InvalidInput

if TYPE_CHECKING:
    from emberkeep.base.configuration.layout import StateLayout
    from emberkeep.base.configuration.values import Configuration
    from emberkeep.client.endpoint import Endpoint
    from emberkeep.client.rest_client import RestClient

T = TypeVar("T")

CLUSTER_GROUP = Group("Cluster and configuration", sort_key=90)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ConfigOptions:
    """Options that say where settings come from."""

    config: Annotated[str | None, Parameter(metavar="FILE", group=CLUSTER_GROUP)] = None
    "Configuration file. Default: $EMBERKEEP_CONF, else config.yaml below the state directory."
    state_dir: Annotated[str | None, Parameter(metavar="DIR", group=CLUSTER_GROUP)] = None
    "State directory of the local cluster. Default: ~/.local/state/emberkeep."
    definitions: Annotated[tuple[str, ...], Parameter(name="-D", metavar="KEY=VALUE", group=CLUSTER_GROUP)] = ()
    "Set a configuration key; may be repeated. `emberkeep config show --all` lists the keys."

    def __post_init__(self) -> None:
        _require_text("--config", self.config)
        _require_text("--state-dir", self.state_dir)

    @property
    def all_definitions(self) -> tuple[str, ...]:
        """All ``-D`` settings, and ``--state-dir`` as the last one."""
        own = () if self.state_dir is None else (f"emberkeep.state-dir={Path(self.state_dir).absolute()}",)
        return (*self.definitions, *own)

    @property
    def config_file(self) -> Path | None:
        return None if self.config is None else Path(self.config).absolute()

    def load(self) -> Configuration:
        """Return all settings. Raises InvalidInput."""
        from emberkeep.base.configuration.places import with_plain_paths
        from emberkeep.base.configuration.sources import load_configuration

        return with_plain_paths(
            load_configuration(config_file=self.config_file, environ=os.environ, definitions=self.all_definitions)
        )

    def layout(self) -> StateLayout:
        from emberkeep.base.configuration.layout import state_layout

        return state_layout(self.load(), os.environ)

    def effective_config_file(self) -> Path | None:
        """Return the file that ``load`` reads, to pass it to another process; None if it reads no file."""
        from emberkeep.base.configuration.sources import CONFIG_FILE_VARIABLE

        if self.config_file is not None:
            return self.config_file
        if os.environ.get(CONFIG_FILE_VARIABLE):
            return Path(os.environ[CONFIG_FILE_VARIABLE]).absolute()
        default = self.layout().config_file
        return default if default.is_file() else None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ClusterOptions(ConfigOptions):
    """Options that select a cluster."""

    url: Annotated[str | None, Parameter(metavar="URL", group=CLUSTER_GROUP)] = None
    "Address of the JobManager. Default: $EMBERKEEP_URL, else rest.address, else the cluster on this machine."

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_text("--url", self.url)

    def find(self) -> Endpoint | None:
        """Return the cluster to talk to; None if none is found. Raises InvalidInput, Fatal."""
        from emberkeep.client.clusters.discovery import find_cluster

        return find_cluster(self.load(), os.environ, self.url)

    def require(self) -> Endpoint:
        """Return the cluster to talk to. Raises NoCluster, InvalidInput, Fatal."""
        from emberkeep.client.clusters.discovery import require_cluster

        return require_cluster(self.load(), os.environ, self.url)


def _require_text(option: str, text: str | None) -> None:
    """Raise InvalidInput for an option that is given and empty: without it, the command would act elsewhere."""
    if text is not None and not text.strip():
        hint = "leave it out; if it comes from a variable, see that this is set"
        raise InvalidInput(f"{option} is empty", field=option, hint=hint)


DEFAULT_CLUSTER = ClusterOptions()


def with_client(endpoint: Endpoint, work: Callable[[RestClient], Awaitable[T]]) -> T:
    """Call ``work`` with a client of ``endpoint``, and return its result."""
    from emberkeep.client.rest_client import RestClient

    async def run() -> T:
        async with RestClient(endpoint) as client:
            return await work(client)

    return asyncio.run(run())
