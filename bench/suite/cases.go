package main

import (
	"fmt"

	"github.com/sluice-ratelimit/sluice/bench/load"
)

// benchCase is one kind of load.
type benchCase struct {
	name, title string
	entries     string
	keys        uint64
	rate        float64 // calls a second, 0 for a closed loop
	fill        bool    // make every counter first
	denied      bool    // a service with limits denies nearly all
}

const twoDescriptors = "user=user-%d,path=/api/v1/orders,method=GET;remote_address=203.0.113.%d,plan=free"

// The closed loops have two connections with 32 calls in flight each, as an Envoy
// with two workers under load has.
const connections, inFlight = 2, 32

var allCases = []benchCase{
	{name: "closed", title: "10,000 counters", entries: "counter=%d", keys: 10_000, fill: true},
	{name: "open", title: "10,000 counters, 5,000 calls a second", entries: "counter=%d", keys: 10_000, fill: true, rate: 5000},
	{name: "hot", title: "one hot counter", entries: "counter=%d", keys: 1},
	{name: "million", title: "1,000,000 counters", entries: "counter=%d", keys: 1_000_000, fill: true},
	{name: "denied", title: "denials, 1,000 exhausted counters", entries: "denied=%d", keys: 1000, fill: true, denied: true},
	{name: "two", title: "two descriptors with five entries, 10,000 counters of each", entries: twoDescriptors, keys: 10_000, fill: true},
}

func caseNames() []string {
	var names []string
	for _, c := range allCases {
		names = append(names, c.name)
	}
	return names
}

// config loads s with this case.
func (c *benchCase) config(s *service) load.Config {
	return load.Config{
		Addr: s.addr, PIDs: []int{s.process.PID()}, Connections: connections, InFlight: inFlight,
		Domain: "bench", Entries: c.entries, Keys: c.keys,
	}
}

// loop says how calls are made.
func (c *benchCase) loop() string {
	if c.rate > 0 {
		return fmt.Sprintf("open loop, latency from the due time, over %d connections", connections)
	}
	return fmt.Sprintf("closed loop, %d connections with %d calls in flight each", connections, inFlight)
}
