from pathlib import Path

import pytest

from emberkeep.base.configuration.options.blobs import BLOB_RETENTION
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY
from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL, REST_PORT
from emberkeep.base.configuration.options.resource_drivers import SLURM_QUERY_INTERVAL
from emberkeep.base.configuration.options.restarts import RESTART_STRATEGY
from emberkeep.base.configuration.options.task_managers import SLOTS
from emberkeep.base.configuration.sources import environment_variable, load_configuration, read_file
from emberkeep.base.configuration.values import REGISTRY, Configuration
from emberkeep.base.errors import InvalidInput


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_later_sources_win_and_each_value_knows_where_it_came_from(tmp_path: Path) -> None:
    file = write(
        tmp_path / "c.yaml", "# ports\nrest.port: 1\nheartbeat.interval: 500ms\ntaskmanager.numberOfTaskSlots: 7\n"
    )
    environ = {"EMBERKEEP_REST__PORT": "2", "EMBERKEEP_HEARTBEAT__INTERVAL": "3 s"}
    configuration = load_configuration(config_file=file, environ=environ, definitions=["rest.port=4"])
    assert configuration[REST_PORT] == 4
    assert configuration.origin(REST_PORT) == "-D"
    assert configuration[HEARTBEAT_INTERVAL] == 3.0
    assert configuration.origin(HEARTBEAT_INTERVAL) == "environment EMBERKEEP_HEARTBEAT__INTERVAL"
    assert configuration[SLOTS] == 7
    assert configuration.origin(SLOTS) == f"{file}:4"


def test_the_file_below_the_state_directory_is_found(tmp_path: Path) -> None:
    write(tmp_path / "config.yaml", "rest.port: 5")
    assert load_configuration(environ={"EMBERKEEP_STATE_DIR": str(tmp_path)})[REST_PORT] == 5
    assert load_configuration(environ={}, definitions=[f"emberkeep.state-dir={tmp_path}"])[REST_PORT] == 5
    assert load_configuration(environ={"XDG_STATE_HOME": str(tmp_path / "none")})[REST_PORT] == 8081


def test_a_named_file_wins_over_the_default_and_must_exist(tmp_path: Path) -> None:
    write(tmp_path / "config.yaml", "rest.port: 5")
    other = write(tmp_path / "other.yaml", "rest.port: 6")
    environ = {"EMBERKEEP_STATE_DIR": str(tmp_path), "EMBERKEEP_CONF": str(other)}
    assert load_configuration(environ=environ)[REST_PORT] == 6
    with pytest.raises(InvalidInput, match=r"cannot read the configuration file .*missing\.yaml: No such file"):
        load_configuration(environ={**environ, "EMBERKEEP_CONF": str(tmp_path / "missing.yaml")})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rest.prt: 1", r"rest\.prt is not a configuration key \(.*c\.yaml:1\) \(did you mean rest\.port\?\)"),
        ("\nrest.port: many", r"rest\.port: 'many' is not valid \(.*c\.yaml:2\): expected a whole number"),
        ("rest:\n  port: 1", r"c\.yaml:1: rest is not a single value \(keys are flat"),
        ("rest.port: 1\nrest.port: 2", r"c\.yaml:2: rest\.port is already set in line 1"),
        ("- rest.port", r"c\.yaml: expected lines of the form `key: value`"),
        ("rest.port: [1", r"c\.yaml is not valid YAML"),
        ("[" * 2000, r"c\.yaml is not valid YAML: it is nested too deeply"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_configuration(config_file=write(tmp_path / "c.yaml", text), environ={})


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert read_file(write(tmp_path / "c.yaml", "# nothing\n")) == []


def test_a_misspelt_variable_is_an_error_but_foreign_ones_are_not() -> None:
    with pytest.raises(
        InvalidInput, match=r"EMBERKEEP_REST__PROT does not name a configuration key \(did you mean EMBERKEEP_RES"
    ):
        load_configuration(environ={"EMBERKEEP_REST__PROT": "1"})
    environ = {"EMBERKEEP_URL": "x", "HOME": "/nowhere", "REST__PORT": "1"}
    assert load_configuration(environ=environ).settings == {}


@pytest.mark.parametrize("definition", ["rest.port", "=5", ""])
def test_a_definition_without_key_or_value_is_an_error(definition: str) -> None:
    with pytest.raises(InvalidInput, match="expected key=value"):
        load_configuration(environ={"HOME": "/nowhere"}, definitions=[definition])


def test_deprecated_keys_are_noted() -> None:
    configuration = load_configuration(environ={"HOME": "/nowhere"}, definitions=["restart-strategy=none"])
    assert configuration[RESTART_STRATEGY] == "none"
    assert "deprecated" in configuration.origin(RESTART_STRATEGY)


@pytest.mark.req("BLOB-12")
def test_the_blobs_retention_is_half_an_hour_in_seconds_and_its_old_name_draws_a_warning() -> None:
    assert Configuration()[BLOB_RETENTION] == 1800.0
    new, old = "blob.retention.interval", "library-cache-manager.cleanup.interval"
    configuration = load_configuration(environ={"HOME": "/nowhere"}, definitions=[f"{new}=60"])
    assert (configuration[BLOB_RETENTION], configuration.warnings()) == (60.0, ())
    configuration = load_configuration(environ={"HOME": "/nowhere"}, definitions=[f"{old}=90"])
    assert configuration[BLOB_RETENTION] == 90.0
    assert configuration.warnings() == (f"{old} is deprecated: set {new} (90)",)


@pytest.mark.parametrize(("text", "warned"), [("1s", True), ("4999ms", True), ("5s", False), ("1min", False)])
def test_asking_slurm_more_often_than_every_5_seconds_draws_a_warning(text: str, warned: bool) -> None:
    assert Configuration().warnings() == ()
    key = SLURM_QUERY_INTERVAL.key
    warnings = load_configuration(environ={"HOME": "/nowhere"}, definitions=[f"{key}={text}"]).warnings()
    assert [warning.startswith(f"{key}: {text} is less than 5s: ") for warning in warnings] == [True] * warned


def test_every_key_has_its_own_variable() -> None:
    assert len({environment_variable(key) for key in REGISTRY}) == len(REGISTRY)
    assert environment_variable(STATE_DIRECTORY.key) == "EMBERKEEP_STATE_DIR"


@pytest.mark.parametrize(
    ("definitions", "expected"),
    [
        (["heartbeat.interval=0"], "expected at least 0.001s"),
        (["heartbeat.timeout=2s"], "not longer than heartbeat.interval, 2 s \\(default\\)"),
        (["heartbeat.interval=1min"], "heartbeat.timeout is 10 s \\(default\\), which is not longer"),
        (["notifications.webhook.timeout=0"], "expected at least 0.001s"),
        (["log.max-size=0"], "expected at least 1k"),
        (["security.audit.max-size=0"], "expected at least 1k"),
        (["emberkeep.state-dir=/\udcff"], "emberkeep.state-dir is not UTF-8 text"),
    ],
)
def test_a_value_that_no_process_can_work_with_is_refused(definitions: list[str], expected: str) -> None:
    with pytest.raises(InvalidInput, match=expected):
        load_configuration(environ={"HOME": "/nowhere"}, definitions=definitions)
