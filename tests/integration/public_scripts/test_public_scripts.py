"""Well-known scripts, unchanged: what they print as jobs of a cluster is what they print under spark-submit."""

from __future__ import annotations

import re
import socket
import threading
import zipfile
from dataclasses import dataclass, field

import pytest

from tests.campaign import drawn
from tests.integration.clusters import Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.public_scripts.both_ways import ALONE, run_both_ways
from tests.integration.public_scripts.resources import WORDS
from tests.integration.public_scripts.scripts import (
    EXAMPLES,
    H2,
    PACKAGE,
    SCRIPTS,
    STREAMS,
    WITHOUT_CLASSES,
    Script,
    examples_of_learning,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]


def name(script: Script) -> str:
    return f"{script.path.parent.name}-{script.path.stem}"


@pytest.mark.parametrize("script", drawn(SCRIPTS, 4), ids=name)
def test_a_job_prints_what_spark_submit_prints(cluster: Cluster, plain: Shell, script: Script) -> None:
    if str(H2) in script.options and not H2.exists():
        pytest.skip(f"there is no {H2}: tools/ensure-h2.sh")
    alone, job = run_both_ways(cluster, plain, script.path, *script.options, arguments=script.arguments)
    assert (alone.code, job.code) == (script.code, script.code), f"{alone}\n{job}"
    assert script.differences(alone.out, job.out, job.err) == []


def test_every_batch_example_of_pyspark_runs_or_lacks_classes() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in EXAMPLES.rglob("*.py")}
    programs = {path for path, text in texts.items() if "__main__" in text}
    streams = {path for path in programs if "streaming" in path.parts or "StreamingContext" in texts[path]}
    named = {script.path for script in SCRIPTS if EXAMPLES in script.path.parents}
    assert programs - streams == {*named, *examples_of_learning(), *WITHOUT_CLASSES}
    assert all("org.apache.spark.examples.pythonconverters" in texts[path] for path in WITHOUT_CLASSES)
    jars = [zipfile.ZipFile(jar) for jar in (PACKAGE / "jars").glob("*.jar")]
    assert len(jars) > 100
    assert [jar for jar in jars if any("org/apache/spark/examples/" in name for name in jar.namelist())] == []


@dataclass
class Lines:
    """A server that tells each client the words, once, and keeps the connection open."""

    _server: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _clients: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def arguments(self) -> tuple[str, str]:
        return "127.0.0.1", str(self._server.getsockname()[1])

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._clients.append(client)
            client.sendall("".join(f"{line}\n" for line in WORDS).encode())

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)  # ends a call of accept, which closing does not
        for each in (self._server, *self._clients):
            each.close()


def counted(output: str) -> dict[str, int]:
    """The words and their numbers as a script prints them: ``('fire', 3)`` or ``|fire|    3|``."""
    pairs = re.findall(r"\('(\w+)', (\d+)\)", output) + re.findall(r"\|\s*(\w+)\|\s*(\d+)\|", output)
    return {word: int(number) for word, number in pairs}


@pytest.mark.parametrize("script", drawn(STREAMS, 1), ids=name)
def test_a_stream_of_words_is_counted_as_under_spark_submit(cluster: Cluster, plain: Shell, script: Script) -> None:
    words = " ".join(WORDS).split()
    answer = {word: words.count(word) for word in words}
    lines = Lines()
    try:
        alone = plain.start(*ALONE, str(script.path), *lines.arguments)
        until(lambda: counted(alone.out) == answer, lambda: f"spark-submit counts the words: {alone}")
        plain.traces.kill()
        alone.wait()
        # A receiver takes the core of an executor for itself.
        job_id = cluster.submit(script.path, arguments=lines.arguments, executors=2)
        until(lambda: counted(cluster.output(job_id)) == answer, lambda: cluster.story(job_id))
        cluster.cancel(job_id)
    finally:
        lines.close()
