package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/bench/load"
)

// comparison compares services under several loads. Each metric becomes a table.
type comparison struct {
	title, text string
	// services are names in [testbed.services]. Ratios are relative to the first one.
	services []string
	metrics  []metric
	cases    []benchCase
}

// benchCase is a kind of load.
type benchCase struct {
	name, title string
	goals       map[string]string // by name of the metric
	domain      string            // of the rules that limit entries
	entries     string
	keys        uint64
	connections int
	inFlight    int     // concurrent calls over all connections
	rate        float64 // calls per second, 0 for a closed loop
	fill        bool    // create every counter first
	denied      bool    // a service with limits denies nearly all calls
	idle        bool    // each connection makes one call and then stays idle
	envoy       bool    // a real Envoy calls the service
	oneCore     bool    // the service may use one processor
	replicas    []int   // connections to each replica of a service; nil for one replica
}

// counters completes a case with a counter per key. By default it has two connections with 32
// concurrent calls each, like an Envoy with two workers under load.
func counters(c benchCase) benchCase {
	c.domain = "counter"
	c.entries = "counter=%d"
	c.fill = true
	c.keys, c.connections, c.inFlight = orDefault(c.keys, 10_000), orDefault(c.connections, 2), orDefault(c.inFlight, 64)
	return c
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

var transport = []benchCase{
	counters(benchCase{name: "closed", title: "64 concurrent calls", goals: goals{"cpu": "3.5"}}),
	counters(benchCase{name: "open", title: "5,000 calls per second", rate: 5000, goals: goals{"cpu": "1.1 × floor (ratio 0.91)"}}),
	counters(benchCase{name: "envoy", title: "through Envoy, 32 connections to it", envoy: true, connections: 32, inFlight: 32, goals: goals{"cpu": "6"}}),
	counters(benchCase{name: "conns1", title: "1 connection", connections: 1}),
	counters(benchCase{name: "conns4", title: "4 connections", connections: 4}),
	counters(benchCase{name: "conns64", title: "64 connections", connections: 64}),
	counters(benchCase{name: "conns10k", title: "10,000 connections", connections: 10_000}),
	counters(benchCase{name: "core", title: "one core for the service", oneCore: true}),
	counters(benchCase{name: "opencore", title: "one core, 5,000 calls per second", oneCore: true, rate: 5000}),
	counters(benchCase{name: "hot", title: "one hot counter", keys: 1}),
	counters(benchCase{name: "million", title: "a million counters", keys: 1_000_000}),
	{name: "denied", title: "denials, 1,000 counters", domain: "denied", entries: "denied=%d", keys: 1000, connections: 2, inFlight: 64, fill: true, denied: true},
	{name: "two", title: "two descriptors with five entries", domain: "two", entries: twoDescriptors, keys: 10_000, connections: 2, inFlight: 64, fill: true},
}

const twoDescriptors = "user=user-%d,path=/api/v1/orders,method=GET;remote_address=203.0.113.%d,plan=free"

type goals = map[string]string

var comparisons = []comparison{
	{
		title: "Transport",
		text: "Unless stated otherwise, there are 64 concurrent calls over two connections, on 10,000 counters. " +
			"In parentheses: minimum and maximum of the first column; for the others the ratio to the first column in the same round, median, minimum and maximum.",
		services: []string{sluiceBuiltin, sluiceGRPC, noop, limitador, floor},
		metrics:  []metric{cpu, perSecond, p50, p99, peak},
		cases:    transport,
	},
	{
		title:    "Idle connections",
		text:     "Each connection has made one call. The growth of resident memory per connection.",
		services: []string{sluiceBuiltin, sluiceGRPC, noop, limitador},
		metrics:  []metric{idle},
		cases: []benchCase{
			counters(benchCase{name: "idle", title: "10,000 connections", connections: 10_000, idle: true, goals: goals{"idle": "8"}}),
		},
	},
	{
		title: "A shared store",
		text: "Each service has its own store, the same program, without persistence; the last column counts in memory. " +
			"There are 64 concurrent calls over six connections, on 10,000 counters. The CPU time is the sum over all replicas.",
		services: []string{sluiceStore, ratelimit, sluiceBuiltin},
		metrics:  []metric{cpu, storeCPU, perSecond, p99},
		cases: []benchCase{
			counters(benchCase{name: "store", title: "one replica", connections: 6, goals: goals{"cpu": "22", "store": "5.6", "rate": "32,000", "p99": "5,500"}}),
			counters(benchCase{name: "storeopen", title: "5,000 calls per second", connections: 6, rate: 5000, goals: goals{"cpu": "120", "store": "1.2 × ratelimit"}}),
			counters(benchCase{name: "store1000", title: "1,000 calls per second", connections: 6, rate: 1000, goals: goals{"store": "1.2 × ratelimit"}}),
			counters(benchCase{name: "store100", title: "100 calls per second", connections: 6, rate: 100, goals: goals{"store": "1.2 × ratelimit"}}),
			{
				name: "storedenied", title: "denials, 1,000 counters", domain: "denied", entries: "denied=%d", keys: 1000,
				connections: 6, inFlight: 64, fill: true, denied: true, goals: goals{"cpu": "as in memory", "store": "0"},
			},
			counters(benchCase{name: "replicas", title: "three replicas", connections: 6, replicas: []int{2, 2, 2}}),
			counters(benchCase{name: "replicasopen", title: "three replicas, 5,000 calls per second", connections: 12, replicas: []int{4, 4, 4}, rate: 5000}),
			counters(benchCase{name: "skewed", title: "the same, one with ten times the calls of another", connections: 12, replicas: []int{10, 1, 1}, rate: 5000}),
		},
	},
	{
		title: "Blocks of a shared store",
		text: "`--store-blocks auto` compared with memory and with a store without blocks, each with its own store. " +
			"There are 64 concurrent calls; every replica gets its share.",
		services: []string{sluiceBuiltin, sluiceStore, sluiceBlocks},
		metrics:  []metric{total, cpu, storeCPU, commands, perSecond, p50, p99},
		cases: []benchCase{
			counters(benchCase{name: "blocks", title: "one hot counter, two replicas", keys: 1, connections: 4, replicas: []int{2, 2}}),
			counters(benchCase{name: "blocksopen", title: "the same, 5,000 calls per second", keys: 1, connections: 4, replicas: []int{2, 2}, rate: 5000}),
			counters(benchCase{name: "blocks100", title: "100 hot counters, three replicas, 10,000 calls per second", keys: 100, connections: 6, replicas: []int{2, 2, 2}, rate: 10000}),
			{
				name: "blocksbucket", title: "one hot token bucket, two replicas", domain: "blocks", entries: "bucket=%d",
				keys: 1, connections: 4, inFlight: 64, fill: true, replicas: []int{2, 2},
			},
			{
				name: "blocksseveral", title: "a token bucket, a sliding window and a fixed window, two replicas", domain: "blocks", entries: "several=%d",
				keys: 1, connections: 4, inFlight: 64, fill: true, replicas: []int{2, 2},
			},
		},
	},
	{
		title: "Ways to limit",
		text: "An Envoy with one worker in front of an upstream, which counts as other work, and sluice. Requests of 1,000 users come over 32 connections, and none is denied. " +
			"In parentheses: minimum and maximum of the first column; for the others the ratio to the first column in the same round, median, minimum and maximum.",
		services: []string{limitNone, limitBucket, limitUsers, limitLocal, limitCalls},
		metrics:  []metric{together, alone, perSecond},
		cases: []benchCase{
			{
				name: "limits", title: "32 concurrent requests", domain: "counter", entries: "counter=%d", keys: 1000, connections: 32, inFlight: 32, envoy: true,
				goals: goals{"together": "one bucket: 1.15"},
			},
		},
	},
}

func caseNames() []string {
	var names []string
	for _, q := range comparisons {
		for _, c := range q.cases {
			names = append(names, c.name)
		}
	}
	for _, l := range accessLogs {
		names = append(names, l.name)
	}
	return names
}

// choose keeps only the cases with these names, comma-separated, and the comparisons that have any.
func (o *options) choose(names string) error {
	known := caseNames()
	var wanted []string
	for name := range strings.SplitSeq(names, ",") {
		if name == "" {
			continue
		}
		if !slices.Contains(known, name) {
			return fmt.Errorf("case %q: must be one of %s", name, strings.Join(known, ", "))
		}
		wanted = append(wanted, name)
	}
	for _, q := range comparisons {
		q.cases = slices.DeleteFunc(slices.Clone(q.cases), func(c benchCase) bool { return !slices.Contains(wanted, c.name) })
		if len(q.cases) > 0 {
			o.comparisons = append(o.comparisons, q)
		}
	}
	o.logs = slices.DeleteFunc(slices.Clone(accessLogs), func(l accessLog) bool { return !slices.Contains(wanted, l.name) })
	return nil
}

// config returns the load of this case on s.
func (c *benchCase) config(s *service) load.Config {
	config := load.Config{
		Addrs: s.addrs, PIDs: s.pids(), Connections: c.connections, InFlight: c.inFlight,
		Domain: c.domain, Entries: c.entries, Keys: c.keys,
	}
	// A replica's address is repeated once per connection.
	if c.replicas != nil {
		config.Addrs = nil
		for i, n := range c.replicas {
			config.Addrs = append(config.Addrs, slices.Repeat(s.addrs[i:i+1], n)...)
		}
	}
	if c.envoy {
		config.Addrs = []string{s.envoy}
		config.HTTP = true
	}
	return config
}
