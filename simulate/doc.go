// Package simulate says what rules would do to recorded traffic: it reads access logs,
// computes what Envoy asked about each request, and decides it with the code that serves,
// [descriptors.Set.Plan] and [limiter.Table.Decide], at the time that the line says.
//
// # From lines to requests
//
// Package accesslog cuts a log into chunks of whole lines, which goroutines on all cores
// read. A line becomes a record: its time, what the log says became of the request, and
// calls with their descriptors, which come from the log itself, from Envoy's configuration
// or from templates. One goroutine takes the records of all logs in the order of their times
// and decides them. So the result has the same bytes whatever the number of cores. What it
// counts becomes a report, of package report.
//
// # What is not known
//
// Nothing is guessed. A descriptor that cannot be computed is unknown, with the reason, and
// is counted. A value of a line that can be read in several ways, because text logs escape
// nothing, is not certain, and what needs it is unknown. A line that cannot be read costs
// that line, and is counted.
//
// Arrivals are as recorded: no client reacts to what the simulated rules deny.
//
// # Memory
//
// A minute of records waits to be put into order, about 120 bytes each. Each key of each
// limit takes about 90 bytes, beside its counter. Logs are not kept.
package simulate
