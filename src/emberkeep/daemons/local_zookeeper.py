"""Finds the ZooKeeper that ``emberkeep cluster up --ha`` has given to the daemons on this machine."""

from __future__ import annotations

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.high_availability import HA_TYPE
from emberkeep.base.configuration.values import Configuration
from emberkeep.client.clusters.cluster_file import read_cluster
from emberkeep.client.clusters.daemon_starts import DaemonStarts


def with_local_zookeeper(configuration: Configuration, layout: StateLayout) -> Configuration:
    """Return the configuration that the daemons of a local cluster with ZooKeeper have; else ``configuration``."""
    record = read_cluster(layout.cluster_file)
    if record is None or not record.zookeepers or HA_TYPE.key in configuration.settings:
        return configuration
    starts = DaemonStarts(configuration, layout, None, lambda _text: None)
    return configuration.with_texts(starts.high_availability(record.zookeepers, leads=False), "cluster up --ha")
