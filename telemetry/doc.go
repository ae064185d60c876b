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
//
// A rule holds its own counters, so a hit costs atomic additions and no lookup. At most 10,000 configured limits and
// 1,000 limits named after values of requests have series of their own; the others count as rule="other" of their
// domain. A client can therefore neither use up the series of a configured rule nor produce a second series of its
// name, which would invalidate the whole page.
//
// StatsD lines are differences of the same counters. What could not be sent stays in the counters, so an unavailable
// server costs neither requests nor memory. Log lines and spans wait in bounded queues; what does not fit is counted.
// Values from clients appear in no span and in no log line above debug.
package telemetry
