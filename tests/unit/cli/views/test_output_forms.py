"""``--output``: the same content as JSON and YAML, and tables that are complete when they are wide."""

from __future__ import annotations

import json

import pytest
import yaml

from emberkeep.cli.application import main
from emberkeep.cli.tables import OutputFormat, print_data
from tests.unit.client.fake_job_manager import FakeJobManager, job_info, task_manager_info

Output = pytest.CaptureFixture[str]
A = "a1" + "0" * 30
LISTS = (
    ["list"],
    ["info", "a1"],
    ["cluster", "status"],
    ["taskmanagers", "list"],
    ["taskmanagers", "show", "tm-1"],
    ["node", "list"],
    ["blob", "list"],
    ["storage", "status"],
    ["config", "show", "--all"],
)


@pytest.fixture
def cluster(fake: FakeJobManager) -> FakeJobManager:
    fake.jobs[A] = job_info(A, "a job with a name that is longer than any column on a terminal " * 3)
    fake.task_managers = [task_manager_info("tm-1")]
    return fake


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_yaml_says_what_json_says(words: list[str], capfd: Output) -> None:
    main([*words, "-o", "json"])
    as_json = json.loads(capfd.readouterr().out)
    main([*words, "--output", "yaml"])
    as_yaml = yaml.safe_load(capfd.readouterr().out)
    if words[0] in ("cluster", "taskmanagers"):  # each reply of the fake has a new heartbeat
        as_json, as_yaml = ({"said": str(each).replace("1700000000", "")[:40]} for each in (as_json, as_yaml))
    assert as_yaml == as_json


@pytest.mark.usefixtures("cluster")
def test_a_wide_table_has_full_ids_and_further_columns(capfd: Output) -> None:
    assert main(["list"]) == 0
    narrow = capfd.readouterr().out.splitlines()
    assert main(["list", "-o", "wide"]) == 0
    wide = capfd.readouterr().out.splitlines()
    assert narrow[1].split()[0] == A[:8]
    assert wide[1].split()[0] == A
    further = ("OWNER", "ENDED", "EXIT CODE")
    assert [name in wide[0] for name in further] == [True] * 3
    assert [name in narrow[0] for name in further] == [False] * 3

    assert main(["taskmanagers", "-o", "wide"]) == 0
    assert "INSTANCE" in capfd.readouterr().out
    assert main(["node", "-o", "wide"]) == 0
    assert capfd.readouterr().out.splitlines()[1].endswith("tm-1")


HOSTILE = "a\x1b]0;title\x07b\x9b2Jc\rd\u202ee\x7f"


@pytest.mark.req("SEC-17")
def test_yaml_is_inert_and_means_the_same(capsys: Output) -> None:
    value = {HOSTILE: [f"{HOSTILE}\n", "two\nlines\n", "ä → 漢字", "yes", "1", "", None, 1.5], "plain": "text"}
    print_data(value, OutputFormat.YAML)
    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x07\x9b\r\u202e\x7f")
    assert yaml.safe_load(printed) == value
    assert "plain: text\n" in printed
    assert "漢字" in printed
