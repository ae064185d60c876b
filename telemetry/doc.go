// Package telemetry is what operators see: metrics for Prometheus and StatsD,
// traces and logs.
//
// Metrics keep the names and labels that envoyproxy/ratelimit has in Prometheus,
// so that dashboards go on working; what has no counterpart there begins with
// sluice_. The number of series is bounded whatever clients send: see [Rules].
package telemetry
