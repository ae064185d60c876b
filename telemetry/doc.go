// Package telemetry provides metrics for Prometheus and StatsD, traces, logs, and conditions.
//
// A condition is a problem that exists now. Its kind is a [Code], which [Definitions] describes.
// [Raise] starts a condition with a line of the log, and a line with [Clear] ends it.
// [Conditions.WhileGrows] and [ClientErrors] are for repeated events.
//
// Metrics have the names and labels of envoyproxy/ratelimit in Prometheus, so that its dashboards
// continue to work; additional ones start with sluice_. The number of series is bounded whatever
// clients send; see [Rules].
//
// A rule has its own counters, so a hit costs atomic additions and no lookup. At most 10,000
// configured limits and 1,000 limits named after request values have series of their own; the
// others count as rule="other" of their domain. A client can therefore neither use up the series of
// a configured rule nor create a duplicate of its series, which would make the complete page
// invalid.
//
// StatsD lines are differences of the same counters. Differences that could not be sent stay in the
// counters, so an unavailable server costs neither requests nor memory. Log lines and spans wait in
// bounded queues; those that do not fit are counted. Values sent by clients appear in no span and
// in no log line above debug.
package telemetry
