// Package dashboards holds a Grafana dashboard and alert rules for Prometheus. Its
// tests hold them against what the real binary shows.
package dashboards
