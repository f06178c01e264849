"""The custom resources of a node, from the configuration and from real scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.adapters.processes.resource_discovery import offered_addresses
from emberkeep.base.configuration import options as _declared  # noqa: F401  (importing it fills the registry)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.slots.custom.addresses import ResourceAddresses

pytestmark = pytest.mark.req("RES-1")

ADDRESSES, SCRIPTS = "taskmanager.resources.addresses", "taskmanager.resources.discovery-scripts"


def configured(**texts: str) -> Configuration:
    keys = {"addresses": ADDRESSES, "scripts": SCRIPTS}
    return Configuration().with_texts({keys[name]: text for name, text in texts.items()}, "test")


def script(directory: Path, body: str, mode: int = 0o700) -> str:
    path = directory / "discover.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(mode)
    return str(path)


def test_configured_and_discovered_addresses_are_offered_by_name(tmp_path: Path) -> None:
    path = script(tmp_path, """echo '{"name": "gpu", "addresses": ["0", "1"]}'""")
    assert offered_addresses(configured(addresses="fpga=f0, f1", scripts=f"gpu={path}")) == (
        ResourceAddresses(name="fpga", addresses=("f0", "f1")),
        ResourceAddresses(name="gpu", addresses=("0", "1")),
    )


def test_a_script_may_find_none(tmp_path: Path) -> None:
    assert offered_addresses(Configuration()) == ()
    path = script(tmp_path, """echo '{"name": "gpu", "addresses": []}'""")
    assert offered_addresses(configured(scripts=f"gpu={path}")) == ()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo no driver >&2; exit 3", "ended with exit code 3: 'no driver'"),
        ("echo 0,1", "printed no resource: '0,1'"),
        ("""echo '{"name": "gpu"}'""", "printed no resource"),
        ("""echo '{"name": "gpus", "addresses": ["0"]}'""", "printed resource 'gpus'"),
        ("""echo '{"name": "gpu", "addresses": ["0", "0"]}'""", "printed an address twice"),
    ],
)
def test_a_script_that_fails_is_named(tmp_path: Path, body: str, message: str) -> None:
    path = script(tmp_path, body)
    with pytest.raises(Fatal) as caught:
        offered_addresses(configured(scripts=f"gpu={path}"))
    assert f"the discovery script {path} of resource gpu {message}" in caught.value.message
    assert caught.value.hint is not None
    assert '{"name": "gpu", "addresses": ["0"]}' in caught.value.hint


def test_a_script_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="cannot be run: No such file"):
        offered_addresses(configured(scripts=f"gpu={tmp_path}/none.sh"))


def test_one_resource_has_one_source() -> None:
    with pytest.raises(InvalidInput, match="resource gpu is in both"):
        offered_addresses(configured(addresses="gpu=0", scripts="gpu=/bin/true"))


@pytest.mark.parametrize("text", ["gpu", "gpu=", "=0", "gpu=0,0", "gpu=0,,1", "gpu=0;gpu=1", "g.pu=0"])
def test_faulty_lists_of_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=ADDRESSES):
        configured(addresses=text)
