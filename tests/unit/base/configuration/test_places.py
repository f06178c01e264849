"""Settings that name a place mean the same on every process."""

from pathlib import Path

import pytest

from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.places import with_plain_paths, with_resolved_places
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.daemons.arguments import parse_arguments

DIRECTORIES = (
    "emberkeep.state-dir",
    "high-availability.storageDir",
    "process.taskmanager.working-dir",
    "process.working-dir",
    "blob.storage.directory",
    "taskmanager.state.local.root-dir",
    "security.token-file",
)
PLACES = (*DIRECTORIES, "blob.storage.ha-directory", "execution.checkpointing.savepoint-dir")


def parsed(*settings: str) -> Configuration:
    return parse_arguments("jobmanager", [word for setting in settings for word in ("-D", setting)])[0]


def text_of(configuration: Configuration) -> str:
    (text,) = configuration.texts().values()
    return text


@pytest.mark.req("SAFE-8")
@pytest.mark.parametrize("key", PLACES)
@pytest.mark.parametrize("place", ["/a b", "file:/a%20b", "file:///a%20b", "FILE://localhost/a%20b"])
def test_a_path_and_its_uri_are_one_place(key: str, place: str) -> None:
    configuration = with_resolved_places(Configuration().with_texts({key: place}, "test"))
    assert text_of(configuration) == "/a b"


@pytest.mark.parametrize("key", PLACES)
@pytest.mark.parametrize(
    ("place", "path"), [("file:///a%20b", "/a b"), ("FILE:/a", "/a"), ("a/b", "a/b"), ("", ""), ("/a", "/a")]
)
def test_commands_take_the_same_uris_and_leave_relative_places_to_the_users_directory(
    key: str, place: str, path: str
) -> None:
    assert text_of(with_plain_paths(Configuration().with_texts({key: place}, "test"))) == path


@pytest.mark.req("SAFE-8")
def test_daemons_use_what_a_file_uri_names() -> None:
    configuration = parsed("high-availability.storageDir=file:///mnt/shared", "emberkeep.state-dir=/state")
    assert state_layout(configuration, {}).graphs == Path("/mnt/shared/graphs")
    assert state_layout(configuration, {}).ha_blobs == "/mnt/shared/blobs"
    assert configuration.texts()["high-availability.storageDir"] == "/mnt/shared", "and so do processes they start"


@pytest.mark.req("SAFE-8")
@pytest.mark.parametrize("key", PLACES)
@pytest.mark.parametrize("place", ["storage", "./storage", "../storage", "file:storage", "file://host/storage"])
def test_a_place_that_depends_on_where_a_process_was_started_is_refused_by_its_key(key: str, place: str) -> None:
    with pytest.raises(InvalidInput, match=key) as refused:
        parsed(f"{key}={place}")
    assert refused.value.field == key
    assert "absolute path" in str(refused.value)


@pytest.mark.req("SAFE-8")
@pytest.mark.parametrize("key", DIRECTORIES)
@pytest.mark.parametrize("place", ["s3://bucket/x", "s3a://bucket/x", "hdfs:///x", "gs://bucket"])
def test_a_kind_of_place_that_cannot_be_used_is_refused_by_its_key(key: str, place: str) -> None:
    with pytest.raises(InvalidInput, match=key) as refused:
        parsed(f"{key}={place}")
    assert refused.value.field == key


@pytest.mark.req("SAFE-8")
def test_what_can_be_used_instead_is_said() -> None:
    with pytest.raises(InvalidInput, match=r"blob\.storage\.ha-directory.*savepoint-dir"):
        parsed("high-availability.storageDir=s3://bucket/x")


@pytest.mark.req("SAFE-8")
@pytest.mark.parametrize(
    "setting",
    [
        "blob.storage.ha-directory=s3://bucket/x",
        "execution.checkpointing.savepoint-dir=s3://bucket/x",
        "execution.checkpointing.savepoint-dir=hdfs://name/x",
        "high-availability.storageDir=",
    ],
)
def test_what_its_reader_understands_stays_as_it_is(setting: str) -> None:
    assert text_of(parsed(setting)) == setting.partition("=")[2]


@pytest.mark.req("SAFE-8")
def test_a_blob_store_at_a_file_uri_is_that_directory() -> None:
    for location in ("file:/mnt/blobs", "file:///mnt/blobs", "/mnt/blobs"):
        assert open_blob_storage(location).location == "/mnt/blobs"
