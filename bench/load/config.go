package load

import (
	"errors"
	"time"
)

// Config says what to call, how and how long.
type Config struct {
	// Addrs are the addresses of the service, host:port or unix:PATH, at least one.
	// Connections go to them in turn, so an address that stands here twice gets two of
	// them.
	Addrs []string
	// HTTP says that Envoys listen there, which ask the service. A call is then a request
	// over HTTP/1.1 with a header for each entry, so Connections must be InFlight.
	HTTP bool
	// Connections is how many there are. InFlight is the number of workers, and so of
	// calls in flight, over all of them. Both are at least 1.
	Connections, InFlight int
	// Rate is the number of calls due each second, over all connections. 0 is a
	// closed loop.
	Rate float64
	// Warmup is the time before Duration, which is the measured time.
	Warmup, Duration time.Duration
	// Timeout is each call's deadline. 0 means none.
	Timeout time.Duration

	// Domain and Entries make the request. Entries is `key=value,...`, with `;` before
	// the next descriptor; %d in a value stands for the key number.
	Domain, Entries string
	// Keys is how many key numbers there are, from 0. At least 1. They are drawn evenly.
	Keys uint64
	// Fill calls each key number once, in order, and stops. So the service has a known
	// number of counters. Warmup and Duration are ignored then.
	Fill bool

	// PIDs are the service's processes, to measure.
	PIDs []int
}

// validate returns what is wrong with c.
func (c *Config) validate() error {
	switch {
	case len(c.Addrs) < 1 || c.Connections < 1 || c.InFlight < 1 || c.Keys < 1:
		return errors.New("addresses, connections, calls in flight and keys must be at least 1")
	case c.HTTP && c.Connections != c.InFlight:
		return errors.New("over HTTP/1.1 each call in flight needs a connection")
	case !(c.Rate >= 0) || c.Warmup < 0 || c.Timeout < 0:
		return errors.New("rate, warm-up and timeout must not be negative")
	case c.Fill && c.Rate > 0:
		return errors.New("filling does not go with a rate")
	case !c.Fill && c.Duration <= 0:
		return errors.New("the duration must be above 0")
	}
	return nil
}
