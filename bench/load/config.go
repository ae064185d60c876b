package load

import "time"

// Config describes the load: the service, the calls and the time.
type Config struct {
	// Addrs are the addresses of the service, host:port or unix:PATH, at least one. Connections use
	// them in round-robin order, so an address that occurs twice gets twice as many.
	Addrs []string
	// HTTP is true if Addrs are Envoys that call the service. A call is then an HTTP/1.1 request
	// with a header for each entry, so Connections must equal InFlight.
	HTTP bool
	// Connections is the number of connections. InFlight is the number of workers, and so of
	// concurrent calls, over all connections. Both are at least 1.
	Connections, InFlight int
	// Rate is the number of calls per second, over all connections. 0 means a closed loop.
	Rate float64
	// Warmup is the time before Duration, the measured time.
	Warmup, Duration time.Duration

	// Domain and Entries define the request. Entries has the format `key=value,...`, with `;`
	// between descriptors; %d in a value is replaced by the key number.
	Domain, Entries string
	// Keys is the number of key numbers, from 0, at least 1. They are drawn uniformly.
	Keys uint64
	// Fill calls each key number once, in order, and stops, so that the service has a known number
	// of counters. Warmup and Duration are ignored.
	Fill bool

	// PIDs are the process IDs of the service, to measure.
	PIDs []int
}
