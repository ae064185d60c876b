// Package telemetry is what operators see: metrics for Prometheus and StatsD,
// traces, logs, and conditions.
//
// A condition is something that is wrong now. It has a [Code], and [Definitions] says what each
// code means. [Raise] begins a condition by a line of the log, and a line with [Clear] ends it.
// [Conditions.WhileGrows] and [ClientErrors] are for what happens again and again.
//
// Metrics keep the names and labels that envoyproxy/ratelimit has in Prometheus,
// so that dashboards go on working; what has no counterpart there begins with
// sluice_. The number of series is bounded whatever clients send: see [Rules].
package telemetry
