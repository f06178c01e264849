"""A local cluster's credentials at its ZooKeeper, and the way from a release that had none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.client.clusters.zookeeper_access import ZooKeeperAccess

pytestmark = pytest.mark.req("SEC-3")

FILE = "high-availability.zookeeper.client.authorization-file"
RULE = "high-availability.zookeeper.insecure-records"


def old(root: Path) -> StateLayout:
    """The state directory of a cluster that has run before."""
    (root / "zookeeper" / "1").mkdir(parents=True)
    return StateLayout(root, Configuration())


def test_a_new_cluster_has_credentials_of_its_own_that_others_cannot_read(tmp_path: Path) -> None:
    access = ZooKeeperAccess(StateLayout(tmp_path, Configuration()), Configuration())
    access.prepare()
    path = tmp_path / "zookeeper" / "login"
    drawn = path.read_text()
    assert drawn.startswith("digest:emberkeep:")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    access.prepare()
    assert path.read_text() == drawn
    for leads in (True, False):
        assert access.settings(leads=leads) == {FILE: str(path)}, "and no insecure rule"


def test_a_running_cluster_of_an_older_release_is_left_as_it_is(tmp_path: Path) -> None:
    access = ZooKeeperAccess(old(tmp_path), Configuration())
    assert access.is_of_older_release
    assert access.settings(leads=True) == access.settings(leads=False) == {RULE: "keep-unsigned"}


def test_its_records_are_signed_at_the_next_start_and_trusted_by_job_managers_only(tmp_path: Path) -> None:
    access = ZooKeeperAccess(old(tmp_path), Configuration())
    access.prepare()
    for _ in range(2):  # the first start may have failed
        assert access.settings(leads=True) == {FILE: str(tmp_path / "zookeeper" / "login"), RULE: "sign"}
        assert access.settings(leads=False) == {FILE: str(tmp_path / "zookeeper" / "login")}
    access.signed()
    assert access.settings(leads=True) == {FILE: str(tmp_path / "zookeeper" / "login")}


def test_what_the_user_has_configured_wins(tmp_path: Path) -> None:
    own = Configuration().with_texts({FILE: "/mine", RULE: "refuse"}, "test")
    access = ZooKeeperAccess(old(tmp_path), own)
    access.prepare()
    assert access.settings(leads=True) == {}


@pytest.mark.req("SEC-9")
def test_the_servers_encrypt_with_the_clusters_own_ca(tmp_path: Path) -> None:
    layout = StateLayout(tmp_path, Configuration())
    assert ZooKeeperAccess(layout, Configuration()).tls() == layout.tls_files
    assert Path(layout.tls_files.certificate).is_file()


@pytest.mark.parametrize(
    "texts",
    [{"security.encryption": "none"}, {"security.tls.certificate": "/a", "security.tls.key": "/b"}],
)
def test_the_servers_of_a_cluster_without_a_ca_do_not_encrypt(tmp_path: Path, texts: dict[str, str]) -> None:
    configuration = Configuration().with_texts(texts, "test")
    assert ZooKeeperAccess(StateLayout(tmp_path, configuration), configuration).tls() is None
    assert not list(tmp_path.iterdir())


def test_no_ca_is_made_for_a_cluster_that_other_machines_reach(tmp_path: Path) -> None:
    configuration = Configuration().with_texts({"rest.address": "10.0.0.5"}, "test")
    with pytest.raises(Fatal, match="no certificate of the cluster"):
        ZooKeeperAccess(StateLayout(tmp_path, configuration), configuration).tls()
