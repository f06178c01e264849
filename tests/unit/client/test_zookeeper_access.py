"""A local cluster's credentials at its ZooKeeper, and the way from a release that had none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.client.clusters.zookeeper_access import ZooKeeperAccess

pytestmark = pytest.mark.req("SEC-3")

FILE = "high-availability.zookeeper.client.authorization-file"
RULE = "high-availability.zookeeper.insecure-records"


def test_a_new_cluster_has_credentials_of_its_own_that_others_cannot_read(tmp_path: Path) -> None:
    access = ZooKeeperAccess(tmp_path / "zookeeper", Configuration())
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
    access = ZooKeeperAccess(tmp_path, Configuration())
    assert access.is_of_older_release
    assert access.settings(leads=True) == access.settings(leads=False) == {RULE: "keep-unsigned"}


def test_its_records_are_signed_at_the_next_start_and_trusted_by_job_managers_only(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    access = ZooKeeperAccess(tmp_path, Configuration())
    access.prepare()
    for _ in range(2):  # the first start may have failed
        assert access.settings(leads=True) == {FILE: str(tmp_path / "login"), RULE: "sign"}
        assert access.settings(leads=False) == {FILE: str(tmp_path / "login")}
    access.signed()
    assert access.settings(leads=True) == {FILE: str(tmp_path / "login")}


def test_what_the_user_has_configured_wins(tmp_path: Path) -> None:
    own = Configuration().with_texts({FILE: "/mine", RULE: "refuse"}, "test")
    (tmp_path / "1").mkdir()
    access = ZooKeeperAccess(tmp_path, own)
    access.prepare()
    assert access.settings(leads=True) == {}
