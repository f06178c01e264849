"""Generates docs/metrics.md from a scrape of a sample cluster, so that the page names what is really exposed."""

from __future__ import annotations

from tests.unit.rest.metrics.sample_scrape import SampleFamily, sample_families

_HEAD = """# Metrics

<!-- Written by `python -m tools.check_docs --write` from a scrape of a sample cluster. Do not edit. -->

This page is for those who monitor a cluster with Prometheus. It lists every metric. The leader serves them:

```yaml
scrape_configs:
  - job_name: emberkeep
    honor_labels: true        # keep our label `job`, which is the id of an Emberkeep job
    follow_redirects: false   # only the leader has metrics; the others redirect to it
    scheme: https             # http without security.encryption
    tls_config: {ca_file: ca.pem}
    authorization: {credentials_file: prometheus.token}
    static_configs:
      - targets: ["jm-1:8081", "jm-2:8081", "jm-3:8081"]
```

`emberkeep token create prometheus --role metrics` makes such a token ([security](security.md)). The token and
`/metrics` name all jobs of the cluster, whatever their namespace.

Names, labels and meanings in this table are stable: a later release adds metrics, and announces in the changelog a
release ahead if it removes one. Besides these, there are the usual metrics of the process (`process_*`, `python_*`).
[Monitoring](monitoring.md) has dashboards and alert rules that use them.

## Push to OpenTelemetry

The leader can also push the same metrics to an OpenTelemetry collector. Install `emberkeep[opentelemetry]` where
JobManagers run, and set:

```yaml
metrics.otlp.endpoint: https://collector:4318
metrics.otlp.ca-file: /etc/emberkeep/collector-ca.pem
metrics.otlp.headers-file: /etc/emberkeep/collector.headers   # mode 0600; Authorization: Bearer TOKEN
```

A collector receives them with this configuration. The exporter is an example:

```yaml
receivers:
  otlp:
    protocols:
      http:
        endpoint: 0.0.0.0:4318
        tls: {cert_file: collector.pem, key_file: collector.key}
exporters:
  prometheusremotewrite: {endpoint: "https://prometheus.example/api/v1/write"}
service:
  pipelines:
    metrics: {receivers: [otlp], exporters: [prometheusremotewrite]}
```

- Names, values, descriptions and labels are those of the table below, with one difference: the label `job` is called
  `emberkeep.job` (`emberkeep_job` in Prometheus), because Prometheus replaces `job` with the service's name. Dashboards
  and alert rules of [Monitoring](monitoring.md) expect `job`: scrape for them.
- The resource has `service.name` (`emberkeep`), `service.instance.id` (the leader's address), `service.version` and
  `emberkeep.cluster.id`. `OTEL_RESOURCE_ATTRIBUTES` adds further attributes.
- Counters and histograms are cumulative. A series has a start time if the leader itself counts it from zero; what it
  takes over, such as counts of task managers, has none. A value that is `NaN` at `/metrics` is left out.
- Only the leader pushes: when it becomes the leader, every `metrics.otlp.interval`, and at an
  orderly end. A push takes at most about 10 s. Within that time it is repeated if the collector
  answers 429, 502, 503 or 504 or cannot be reached. If a collector asks with `Retry-After` to wait
  longer, the next push waits that long, at most 5 minutes; else it comes at the next interval, with
  newer values.
- The log says when pushes begin to fail and when they work again, with the collector's own words.
  `emberkeep_metrics_pushes_total{outcome="failed"}` at `/metrics` counts them, also those of which
  the collector has rejected a part.
- Beyond this machine, the endpoint must be https. Redirects and proxies are not used. The protocol is OTLP by HTTP with
  gzip; gRPC is not supported.
- If an endpoint is set and the libraries are not installed, or a file cannot be used, a JobManager does not start.

## How many series there are

- Each task manager has about 40.
- Each job that has not ended has about 20, and each of its streaming queries about 15. At most `metrics.max-jobs` jobs
  and `metrics.max-queries` queries have series of their own. `emberkeep_metrics_left_out` says how many have none:
  those that were submitted last. The sums over all jobs, such as `emberkeep_jobs`, always count all.
- Requests are counted by route and message, never by path or id.

The label `query` is the query's name, or the name of its checkpoint's directory if it has no name.

## All metrics

| metric | type | labels | meaning |
|---|---|---|---|
"""
_TAIL = """
## Read next

- [Monitoring](monitoring.md): dashboards, alert rules, the watchdog and webhooks
- [Runbook](runbook.md): what each alert means, and what to do
"""


def render() -> str:
    """Return the whole page."""
    return _HEAD + "".join(map(_row, sample_families())) + _TAIL


def _row(family: SampleFamily) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.doc} |\n"
