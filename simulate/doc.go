// Package simulate replays access logs through rules. It computes the descriptors that Envoy sent
// for each request and decides them with the service's code, [descriptors.Set.Plan] and
// [limiter.Table.Decide], at the logged time.
//
// # From lines to decisions
//
// Package accesslog splits a log into chunks of complete lines, which workers on all cores parse. A
// line becomes a record: its time, its recorded outcome, and its calls with their descriptors,
// which come from the log itself, from Envoy's configuration or from templates. One goroutine
// merges the records of all logs in order of time and decides them, so the result does not depend
// on the number of cores. Package report formats it.
//
// # Unknown descriptors
//
// Nothing is guessed. A descriptor that cannot be computed, for example because a value is
// ambiguous in a text log, is unknown and is counted with the reason. An unreadable line is skipped
// and counted.
//
// Arrivals are as recorded: no client reacts to simulated denials.
//
// # Memory
//
// A minute of records waits to be sorted, at about 120 bytes each. Each key of each limit takes
// about 90 bytes in addition to its counter. Logs are not kept.
package simulate
