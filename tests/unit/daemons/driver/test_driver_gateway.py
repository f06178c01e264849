"""The driver's own state gateway, in a process of its own as it is in a driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from emberkeep.base.files.durable import write_file
from emberkeep.base.tls.seeded_certificate import seeded_certificate

pytestmark = [pytest.mark.req("LOC-11")]

PROGRAM = """
import os, ssl, sys
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from emberkeep.daemons.driver.gateway import serve_own_gateway

class Stay(HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None

directory, job, certificate = sys.argv[1], "a" * 32, sys.argv[2]
tls = SimpleNamespace(certificate=certificate, key=certificate, ca="") if certificate else None
secure = HTTPSHandler(context=ssl.create_default_context(cafile=certificate or None))

def ask(method, url, data=None):
    try:
        with build_opener(Stay, secure).open(Request(url, method=method, data=data), timeout=120) as answer:
            return answer.status, answer.read(), answer.headers
    except HTTPError as error:
        return error.code, error.read(), error.headers

os.environ["EMBERKEEP_STATE_CREDENTIAL"] = "secret"
serve_own_gateway(SimpleNamespace(
    checkpoint_root=f"{directory}/checkpoints/{job}", checkpoints_recorded=False, checkpoints=(), directory=directory,
    graph=SimpleNamespace(job_id=job), tls=tls, attempt=3, host="here"
))
base = f"{'https' if tls else 'http'}://{os.environ['EMBERKEEP_STATE_GATEWAY']}/webhdfs/v1/{job}/own/offsets/0"
status, _, headers = ask("PUT", f"{base}?op=CREATE&overwrite=false&user.name=secret")
assert status == 307, status
assert ask("PUT", headers["Location"], b"a batch")[0] == 201
assert ask("GET", f"{base}?op=OPEN&step=data&user.name=secret")[:2] == (200, b"a batch")
assert ask("GET", f"{base}?op=OPEN&step=data&user.name=another")[0] == 403
"""


@pytest.mark.parametrize("encrypts", [True, False])
@pytest.mark.req("SEC-9")
def test_it_serves_the_drivers_jvm_and_nobody_else(tmp_path: Path, encrypts: bool) -> None:
    (tmp_path / "checkpoints").mkdir()
    certificate = ""
    if encrypts:
        certificate = str(tmp_path / "driver.pem")
        write_file(Path(certificate), seeded_certificate(b"d" * 32).pem)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), certificate],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    job = tmp_path / "checkpoints" / ("a" * 32)
    assert (job / "offsets" / "0").read_bytes() == b"a batch"
    assert (tmp_path / "state-trust.p12").exists() == encrypts
    assert (job / ".attempts" / "3").exists(), "older attempts are kept out"
