import pytest
from cyclopts import App, Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.application import build_app
from emberkeep.cli.script_arguments import FLAGS, UPGRADE_FLAGS, normalise, normalise_after_path


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ([], ["--"]),
        (["app.py"], ["--", "app.py"]),
        (["app.py", "--conf", "a=b", "-v", "--", "x"], ["--", "app.py", "--conf", "a=b", "-v", "--", "x"]),
        (["--conf", "a=b", "app.py", "c"], ["--conf=a=b", "--", "app.py", "c"]),
        (["-c", "a=b", "--conf=c=d", "app.py"], ["--conf=a=b", "--conf=c=d", "--", "app.py"]),
        (["-D", "a=b", "-Dc=d", "app.py", "-De=f"], ["-Da=b", "-Dc=d", "--", "app.py", "-De=f"]),
        (["--driver-java-options", "-Dx=1 -Dy=2", "app.py"], ["--driver-java-options=-Dx=1 -Dy=2", "--", "app.py"]),
        (["--quiet", "-v", "--supervise", "app.py"], ["--quiet", "-v", "--supervise", "--", "app.py"]),
        (["--", "--strange.py"], ["--", "--strange.py"]),
        (["-m", "pkg.mod", "-m", "x"], ["--module=pkg.mod", "--", "-m", "x"]),
        (["--module", "pkg", "arg"], ["--module=pkg", "--", "arg"]),
        (["--module=pkg", "--name", "x", "--", "y"], ["--module=pkg", "--", "--name", "x", "--", "y"]),
        (["-m=pkg", "--name", "x"], ["--module=pkg", "--", "--name", "x"]),
        (["-c=a=b", "app.py", "-c=c=d"], ["--conf=a=b", "--", "app.py", "-c=c=d"]),
        (["--name"], ["--name", "--"]),
        (["-"], ["--", "-"]),
    ],
)
def test_everything_after_the_script_belongs_to_it(given: list[str], normal: list[str]) -> None:
    assert normalise(given) == normal


@pytest.mark.parametrize("option", ["--kill", "--status=x", "--principal", "--keytab", "--proxy-user", "--remote"])
def test_options_that_only_spark_submit_has_are_told(option: str) -> None:
    with pytest.raises(InvalidInput, match="is not supported"):
        normalise([option, "x", "app.py"])


def _flags(app: App) -> set[str]:
    """The options of a command that take no value."""
    return {
        name
        for argument in app.assemble_argument_collection(default_parameter=Parameter(negative=()))
        for name in argument.names
        if name.startswith("-") and argument.token_count()[0] == 0
    }


@pytest.mark.parametrize("command", ["run", "submit"])
def test_the_flags_known_here_are_the_commands_flags(command: str) -> None:
    assert _flags(build_app()[command]) <= FLAGS


def test_no_flag_is_left_over() -> None:
    assert _flags(build_app()["run"]) | {"--help", "-h"} == FLAGS


def test_the_flags_of_an_upgrade_may_be_anywhere_before_the_script() -> None:
    assert _flags(build_app()["upgrade"]) <= UPGRADE_FLAGS
    words = ["counts", "--cancel", "--detach", "app.py", "--cancel"]
    assert normalise_after_path(words, UPGRADE_FLAGS) == ["--cancel", "--detach", "--", "counts", "app.py", "--cancel"]
