// Package dashboards contains a Grafana dashboard and alert rules for Prometheus. Its tests compare
// them with the metrics of the sluice binary.
package dashboards
