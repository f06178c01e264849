"""How the events of a pipeline's run are read: Spark sends a time and a message."""

from types import SimpleNamespace
from typing import Any

import pytest

from emberkeep.spark.doors import flows, pipeline_run
from emberkeep.spark.doors.flows import flow_event, known_flows


@pytest.mark.parametrize(
    ("message", "name", "state"),
    [
        ("Flow spark_catalog.default.orders is QUEUED.", "spark_catalog.default.orders", "QUEUED"),
        ("Flow orders is RUNNING.", "orders", "RUNNING"),
        ("Flow spark_catalog.default.orders has COMPLETED.", "spark_catalog.default.orders", "COMPLETED"),
        ("Flow 'spark_catalog.default.orders' has FAILED.\nError: [X] no", "spark_catalog.default.orders", "FAILED"),
        ("Flow 'two words' SKIPPED due to upstream failure(s).", "two words", "SKIPPED"),
        ("Flow 'orders' is IDLE, waiting for new data.", "orders", "IDLE"),
    ],
)
def test_a_message_names_a_flow_and_its_state(message: str, name: str, state: str) -> None:
    event = flow_event(message, 5)
    assert event is not None
    assert (event.name, event.state, event.changed_ms) == (name, state, 5)
    assert event.message == message.replace("\n", " ")


@pytest.mark.parametrize(
    "message",
    [
        "Run is COMPLETED.",
        "Flow 'orders' has been processed by a previous iteration and will not be rerun.",
        "Flowers are nice.",
        "",
    ],
)
def test_other_messages_say_nothing_about_flows(message: str) -> None:
    assert flow_event(message, 5) is None


def test_the_events_of_a_run_are_noted_as_they_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows._Known, "flows", {})
    results: list[dict[str, Any]] = [
        {"pipeline_command_result": object()},
        *(
            {"pipeline_event_result": SimpleNamespace(event=Event(message, time_ms))}
            for message, time_ms in (("Flow a is RUNNING.", 3), ("Run is RUNNING.", 4), ("Flow a has COMPLETED.", 5))
        ),
    ]
    passed = pipeline_run._noted(results)
    assert [next(passed), next(passed)] == results[:2]
    assert [(flow.name, flow.state) for flow in known_flows()] == [("a", "RUNNING")]
    assert list(passed) == results[2:]
    assert [(flow.name, flow.state, flow.changed_ms) for flow in known_flows()] == [("a", "COMPLETED", 5)]


class Event:
    """An event of Spark Connect."""

    def __init__(self, message: str, time_ms: int) -> None:
        self.message = message
        self.timestamp = SimpleNamespace(ToMilliseconds=lambda: time_ms)
