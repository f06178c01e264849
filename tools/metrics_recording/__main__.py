"""Record what Prometheus reads of a real cluster in trouble: ``python -m tools.metrics_recording FILE``.

The file is ``tests/unit/cli/monitoring/recorded.yml``. Record it again after a change of a metric that the alert rules
read. It takes about ten minutes on a busy machine, and needs Java.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import yaml

from emberkeep.cli.monitoring.commands import RULES, files_to_export
from tests.integration.clusters import Cluster
from tests.integration.commands import Shell
from tools.metrics_recording.scenes import Stage, play
from tools.metrics_recording.scrapes import names_in

_HEAD = """\
# What /metrics of a real cluster had while these things went wrong, a scrape a second: written by `make recording`.
# step: seconds that a scrape stands for in the test, so that what lasts for minutes is recorded within seconds.
# peak: the last scrape before things got better.
"""


def main(words: list[str]) -> None:
    (file,) = words
    names = names_in(yaml.safe_dump(yaml.safe_load(files_to_export()[RULES])))
    with tempfile.TemporaryDirectory(prefix="metrics-recording-") as directory:
        archives = Path(directory) / "archives"
        archives.mkdir()
        shell = Shell(Path(directory) / "cluster", archives)
        stage = Stage(Cluster(shell), names)
        try:
            with shell.traces.watching():
                play(stage)
            write(Path(file), stage)  # only if all went as planned: half a recording replaces no whole one
        finally:
            shell.run("cluster", "down")
            shell.traces.kill()  # what was killed in the scenes may have left something behind


def write(file: Path, stage: Stage) -> None:
    scenes = [
        {"name": each.name, "step": each.step, "samples": each.samples, "peak": each.peak, "series": each.series}
        for each in stage.scenes
    ]
    file.write_text(_HEAD + yaml.safe_dump(scenes, sort_keys=False, width=110, allow_unicode=True))


if __name__ == "__main__":
    main(sys.argv[1:])
