"""`emberkeep run` with nothing configured: what it shows, what it returns, and that it leaves nothing behind.

The ``shell`` of each test fails when a process, a listening port or a temporary file of it is left.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.integration.commands import SMALL, Ended, Running, Shell
from tests.integration.conditions import until
from tests.integration.leaks import Seen
from tests.integration.streams import SCRIPT, Stream
from tests.support.live_files import files_below

pytestmark = pytest.mark.integration

ONE = (*SMALL, "--num-executors", "1")


def check_no_trace(shell: Shell) -> None:
    """Neither processes nor files, now that the command has ended."""
    shell.traces.check_nothing_left()
    runs = shell.state / "runs"
    assert not runs.exists() or not list(runs.iterdir())


def own_frames(ended: Ended) -> list[str]:
    """Lines of a shown traceback that name code of ours."""
    package = re.compile(r"\s*File .*/(src|site-packages)/emberkeep/")  # the checkout may have this name, too
    return [line for line in ended.err.splitlines() if package.match(line)]


def process(shell: Shell, *words: str) -> Seen:
    """The only live process with these words in its command line."""
    found: list[Seen] = until(lambda: shell.traces.find(*words), f"a process of {words}")
    assert len(found) == 1, found
    return found[0]


def wait_for_output(running: Running, text: str) -> None:
    until(lambda: text in running.out or running.process.poll() is not None, lambda: f"{text!r} in {running}")
    assert text in running.out, running


def test_a_script_sees_what_plain_python_shows_it_and_its_exit_code_is_returned(shell: Shell) -> None:
    shell.write("app/sibling.py", "def seven(number):\n    return 7 * number\n")
    shell.write("data.csv", "1\n2\n3\n")
    shell.write(
        "app/main.py",
        """
import os, sys
import sibling
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = SparkSession.builder.getOrCreate()
seven = udf(sibling.seven, "int")
rows = spark.read.csv("data.csv", schema="number int").select(seven("number")).collect()
print("rows", sorted(row[0] for row in rows), sys.argv, __name__, os.path.relpath(__file__))
print("to standard error", file=sys.stderr)
print("partitions", spark.conf.get("spark.sql.shuffle.partitions"), end="")
sys.exit(3)  # without having stopped Spark
""",
    )
    ended = shell.run("run", *ONE, "--conf", "spark.sql.shuffle.partitions=5", "app/main.py", "--conf", "mine", "ü x")
    assert ended.code == 3, ended
    arguments = [str(shell.work / "app/main.py"), "--conf", "mine", "ü x"]
    assert ended.out == f"rows [7, 14, 21] {arguments} __main__ app/main.py\npartitions 5"
    assert "to standard error\n" in ended.err
    assert "FAILED: the script exited with code 3" in ended.err
    assert "Traceback" not in ended.err
    check_no_trace(shell)
    assert sorted(path.name for path in shell.work.iterdir()) == ["app", "data.csv"]


@pytest.mark.long
def test_an_exception_is_shown_as_python_shows_it_with_its_root_cause(shell: Shell) -> None:
    shell.write(
        "broken.py",
        """
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = SparkSession.builder.getOrCreate()
@udf("int")
def bad(number):
    raise KeyError("nothing under this name")
def outer():
    spark.range(2).select(bad("id")).collect()
outer()
""",
    )
    ended = shell.run("run", *ONE, "broken.py")
    assert ended.code == 1, ended
    assert "Traceback (most recent call last):" in ended.err
    assert f'File "{shell.work}/broken.py", line 10, in <module>' in ended.err
    assert "nothing under this name" in ended.err
    assert not own_frames(ended), ended
    last = ended.err.splitlines()[-1]
    assert "FAILED: " in last, ended
    assert "PythonException" in last, ended
    check_no_trace(shell)


def test_modules_and_scripts_without_spark(shell: Shell) -> None:
    shell.write("package/__init__.py", "")
    shell.write("package/tool.py", "import sys\nprint('module', __name__, __package__, sys.argv[1:])\n")
    shell.write(
        "plain.py", "import sys\nsys.stdout.write(sys.argv[1])\nraise ValueError('no number: ' + sys.argv[1])\n"
    )
    ended = shell.run("run", "-m", "package.tool", "-x", "y")
    assert (ended.code, ended.out) == (0, "module __main__ package ['-x', 'y']\n"), ended
    ended = shell.run("run", "-q", "./plain.py", "seven")
    assert (ended.code, ended.out) == (1, "seven"), ended
    assert "ValueError: no number: seven" in ended.err.splitlines()[-1], ended
    assert not own_frames(ended), ended
    check_no_trace(shell)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing.py"], ["missing.py"]),
        (["syntax.py"], ["does not compile", "syntax.py", "line 2", "^"]),
        (["--conf", "no-equals-sign", "fine.py"], ["--conf no-equals-sign", "there is no '='"]),
        (["--driver-memory", "1.5g", "fine.py"], ["spark.driver.memory", "1536m"]),
        (["--executor-cores", "none", "fine.py"], ["spark.executor.cores"]),
        (["-D", "heartbeat.intervall=1s", "fine.py"], ["heartbeat.intervall", "heartbeat.interval"]),
        (["--py-files", "not-there.zip", "fine.py"], ["--py-files", "not-there.zip"]),
    ],
)
def test_bad_input_is_refused_before_anything_starts(shell: Shell, words: list[str], said: list[str]) -> None:
    shell.write("fine.py", "print('ran')\n")
    shell.write("syntax.py", "print('ran')\nif True print()\n")
    ended = shell.run("run", *words)
    assert ended.code == 2, ended
    assert ended.out == "", ended
    assert not [word for word in said if word not in ended.err], ended
    assert "Traceback" not in ended.err, ended
    assert not shell.state.exists() or not list(shell.state.iterdir())
    assert not [seen for seen in shell.traces.seen.values() if "daemons" in str(seen)]


ENDLESS_JOB = """
import time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
def slow(number):
    if number:
        time.sleep(3600)
    return number
print("first", spark.sparkContext.parallelize([0], 1).map(slow).collect(), flush=True)
spark.sparkContext.parallelize([1], 1).map(slow).collect()
"""

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()  # a daemon of its own
    time.sleep(3600)
print("deaf", flush=True)
while True:
    time.sleep(1)
"""


@pytest.mark.long
def test_ctrl_c_cancels_a_running_job(shell: Shell) -> None:
    shell.write("endless.py", ENDLESS_JOB)
    running = shell.start("run", *ONE, "endless.py")
    wait_for_output(running, "first [0]")
    running.process.send_signal(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130, ended
    assert "cancelling the job" in ended.err
    assert "CANCELED" in ended.err.splitlines()[-1], ended
    assert "restart" not in ended.err
    check_no_trace(shell)


def test_ctrl_c_twice_kills_a_script_that_ignores_sigterm(shell: Shell) -> None:
    shell.write("stubborn.py", STUBBORN)
    running = shell.start("run", "-D", "task.cancellation.timeout=1h", "stubborn.py")
    wait_for_output(running, "deaf")
    running.process.send_signal(signal.SIGINT)
    until(lambda: "press Ctrl-C again" in running.err, lambda: str(running))
    assert running.process.poll() is None
    running.process.send_signal(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130, ended
    assert "killing the job" in ended.err
    check_no_trace(shell)


@pytest.mark.long
def test_everything_goes_when_the_command_is_killed(shell: Shell) -> None:
    shell.write("endless.py", ENDLESS_JOB)
    running = shell.start("run", *ONE, "endless.py")
    wait_for_output(running, "first [0]")
    running.process.kill()
    running.wait()
    shell.traces.check_nothing_left()
    # Nobody was there to remove the directory; the next run leaves its logs alone.
    (directory,) = (shell.state / "runs").iterdir()
    shell.write("fine.py", "print('ran')\n")
    assert shell.run("run", "-q", "fine.py").out == "ran\n"
    shell.traces.check_nothing_left()
    assert list((shell.state / "runs").iterdir()) == [directory]
    assert not files_below(directory, name="jobs.sqlite")


@pytest.mark.long
def test_a_streaming_job_goes_on_when_the_embedded_daemon_is_killed(shell: Shell) -> None:
    stream = Stream(shell.directory / "stream")
    shell.write("stream.py", SCRIPT)
    running = shell.start("run", *ONE, "-D", "job.driver.lease-timeout=5s", "stream.py", str(stream.place))
    until(lambda: stream.batches() >= 3 or running.process.poll() is not None, lambda: str(running))
    daemon = process(shell, "emberkeep.daemons.local")
    os.kill(daemon.identity.pid, signal.SIGKILL)
    again = "was killed by signal 9; restarting it, the job continues"
    until(lambda: again in running.err or running.process.poll() is not None, lambda: str(running))
    until(lambda: "emberkeep.daemons.local" in str(shell.traces.processes()), lambda: str(running))
    before = stream.batches()
    until(lambda: stream.batches() >= before + 4 or running.process.poll() is not None, lambda: str(running))
    stream.finish()
    ended = running.wait()
    assert ended.code == 0, ended
    assert len(stream.drivers()) == 1
    assert "attempt over after batch" in ended.out
    stream.check()
    assert process_free_of_temporary_libraries(shell.directory)
    check_no_trace(shell)


def process_free_of_temporary_libraries(directory: Path) -> bool:
    """No native library that a killed JVM had unpacked is left."""
    return not files_below(directory, name="librocksdb*")
