"""What is known of a pipeline's flows: the newest event about each, and a bounded number of them."""

from emberkeep.jobs.progress.flows import FLOWS_KEPT, FlowProgress, with_event


def event(name: str, state: str, time_ms: int = 1) -> FlowProgress:
    return FlowProgress(name=name, state=state, changed_ms=time_ms, message="")


def test_the_newest_event_about_each_flow_is_known_in_the_order_of_the_first() -> None:
    flows = with_event({}, event("orders", "QUEUED"))
    flows = with_event(flows, event("total", "QUEUED"))
    flows = with_event(flows, event("orders", "RUNNING", 2))
    assert list(flows.values()) == [event("orders", "RUNNING", 2), event("total", "QUEUED")]


def test_of_many_flows_those_that_came_first_are_kept_up_to_date() -> None:
    flows = {f"f{number}": event(f"f{number}", "QUEUED") for number in range(FLOWS_KEPT)}
    assert with_event(flows, event("one more", "QUEUED")) == flows
    assert with_event(flows, event("f7", "RUNNING"))["f7"].state == "RUNNING"
