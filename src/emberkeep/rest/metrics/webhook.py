"""Metrics of the webhook: what became of the events that were sent."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from emberkeep.notifications.outbox import Counts
from emberkeep.rest.ports import Deliveries


class WebhookMetrics(Collector):
    """Collector of a webhook's own counts; of zeros without a webhook."""

    def __init__(self, registry: CollectorRegistry, webhook: Deliveries | None) -> None:
        self._webhook = webhook
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics for the registry."""
        webhook = self._webhook
        counts, waiting = (Counts(), 0) if webhook is None else (webhook.counts, webhook.waiting)
        events = CounterMetricFamily(
            "emberkeep_webhook_events",
            "Events for the webhook: delivered; dropped, because it refused them or was out of reach for too long.",
            labels=["outcome"],
        )
        events.add_metric(["delivered"], counts.delivered)
        events.add_metric(["dropped"], counts.dropped)
        yield events
        yield CounterMetricFamily(
            "emberkeep_webhook_failures", "Requests to the webhook that failed.", value=counts.failures
        )
        yield GaugeMetricFamily("emberkeep_webhook_waiting", "Events that wait for the webhook.", value=waiting)
