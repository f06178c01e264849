"""What Airflow learns about the provider from its installed distribution, and the hook that its form tests."""

from __future__ import annotations

import subprocess
import sys

import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from emberkeep.jobs.model import JobStatus
from emberkeep_airflow.hook import EmberkeepHook
from tests.unit.airflow_provider.test_job_run import ONE
from tests.unit.client.fake_job_manager import FakeJobManager, job_info


def test_airflow_finds_the_connection_type_and_its_form() -> None:
    manager = ProvidersManager()
    assert "emberkeep-airflow" in manager.providers  # and so its description fits Airflow's schema
    hook = ProvidersManagerTaskRuntime().hooks["emberkeep"]
    assert hook is not None
    assert (hook.hook_name, hook.connection_type) == ("Emberkeep", "emberkeep")
    form = manager.field_behaviours["emberkeep"]
    assert form["hidden_fields"] == ["login", "extra"]
    assert form["relabeling"]["password"] == "Token"
    fields = {name for name in manager.connection_form_widgets if name.startswith("extra__emberkeep__")}
    assert fields == {
        f"extra__emberkeep__{name}"
        for name in ("ca", "others", "namespace", "deployment", "console", "insecure_network")
    }
    assert "emberkeep_airflow.operator.EmberkeepJobLink" in manager.extra_links_class_names


def test_the_form_tests_a_connection(fake: FakeJobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    assert EmberkeepHook().test_connection() == (True, "0 task managers, 1 free slots")
    url = fake.url.removeprefix("http://")
    monkeypatch.setenv("AIRFLOW_CONN_EMBERKEEP_DEFAULT", f"emberkeep://:wrong@{url}/http")
    works, why = EmberkeepHook().test_connection()
    assert not works
    assert "token" in why


def test_the_hook_reads_and_cancels_jobs(fake: FakeJobManager) -> None:
    fake.jobs[ONE] = job_info(ONE)
    hook = EmberkeepHook()
    assert hook.job(ONE).state is JobStatus.RUNNING
    assert hook.cancel(ONE)
    fake.jobs[ONE] = job_info(ONE, state=JobStatus.FAILED)
    assert not hook.cancel(ONE)


def test_the_provider_needs_no_pyspark() -> None:
    modules = "emberkeep_airflow.operator, emberkeep_airflow.sensor, emberkeep_airflow.provider_info"
    heavy = "{'pyspark', 'pandas', 'pyarrow', 'numpy', 'kazoo'}"
    subprocess.run([sys.executable, "-c", f"import sys, {modules}; assert not {heavy} & set(sys.modules)"], check=True)
