"""``dashboards``: Grafana dashboards and alert rules for Prometheus, as files in this package."""
