package top

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// maxLimits is the number of limits requested from each replica, the busiest ones.
const maxLimits = 300

// Service is a running service of one or more replicas.
type Service struct {
	// Addrs are debug listeners: host:port or unix:///path. A DNS name with several addresses
	// stands for a replica at each of them.
	Addrs []string
	// Dial returns a client of a debug listener. name is the host of which addr is an address, or
	// empty.
	Dial func(addr, name string) (*client.Debug, error)
	// Explain formats the report about a descriptor.
	Explain func(*admin.CounterReport, client.CounterQuery) string
	// Lookup is a method of [net.Resolver].
	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Snapshot is the state of a service at a time.
type Snapshot struct {
	// Sum is the aggregated state of the replicas.
	Sum *live.State
	// Replicas have responded.
	Replicas []*client.Debug
}

// Fetch returns the state of the replicas that respond, nil if none does, and the errors of the
// others.
func (s *Service) Fetch(ctx context.Context) (*Snapshot, error) {
	all, err := s.Clients(ctx)
	if err != nil {
		return nil, err
	}
	states := make([]*live.State, len(all))
	failed := make([]error, len(all))
	var wait sync.WaitGroup
	for i, replica := range all {
		wait.Go(func() { states[i], failed[i] = replica.State(ctx, maxLimits) })
	}
	wait.Wait()
	snapshot := &Snapshot{}
	var addrs []string
	for i, replica := range all {
		if failed[i] != nil {
			err = errors.Join(err, fmt.Errorf("query %s: %w", replica.Addr, failed[i]))
			continue
		}
		addrs = append(addrs, replica.Addr)
		snapshot.Replicas = append(snapshot.Replicas, replica)
	}
	if len(addrs) == 0 {
		return nil, err
	}
	snapshot.Sum = live.Sum(addrs, slices.DeleteFunc(states, func(s *live.State) bool { return s == nil }))
	for i, replica := range all {
		if failed[i] != nil {
			missing := telemetry.NewCondition(telemetry.NoAnswer, snapshot.Sum.Time)
			missing.Replica = replica.Addr
			missing.Text = "no answer: " + failed[i].Error()
			snapshot.Sum.Conditions = append([]telemetry.Condition{missing}, snapshot.Sum.Conditions...)
		}
	}
	return snapshot, err
}

// Clients returns a client of each replica.
func (s *Service) Clients(ctx context.Context) (all []*client.Debug, err error) {
	for _, addr := range s.Addrs {
		some, err := s.dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// dial returns the clients of the replicas at an address.
func (s *Service) dial(ctx context.Context, addr string) (all []*client.Debug, err error) {
	host, port, _ := net.SplitHostPort(addr)
	ips := s.lookUp(ctx, host)
	if strings.HasPrefix(addr, "unix:") || len(ips) < 2 {
		one, err := s.Dial(addr, "")
		if err != nil {
			return nil, err
		}
		return append(all, one), nil
	}
	for _, ip := range ips {
		one, err := s.Dial(net.JoinHostPort(ip.String(), port), host)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// lookUp returns the addresses of a DNS name, sorted, or nil if host is something else or has none.
// Replicas with addresses of both families would be counted twice, so IPv6 is only used without
// IPv4.
func (s *Service) lookUp(ctx context.Context, host string) (ips []netip.Addr) {
	if _, err := netip.ParseAddr(host); err == nil || host == "" || host == "localhost" {
		return nil
	}
	for _, network := range []string{"ip4", "ip6"} {
		if found, err := s.Lookup(ctx, network, host); err == nil && len(found) > 0 {
			slices.SortFunc(found, netip.Addr.Compare)
			return slices.Compact(found)
		}
	}
	return nil
}

// Unmask shows the values of denied keys for the given time at each replica, and describes what each
// has done. The error contains those of all replicas.
func (s *Service) Unmask(ctx context.Context, d time.Duration) (done []string, err error) {
	replicas, err := s.Clients(ctx)
	for _, r := range replicas {
		report, failed := r.Unmask(ctx, d)
		switch {
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", r.Addr, failed))
		case report.Until == nil:
			done = append(done, r.Addr+": values of denied keys are no longer shown")
		default:
			done = append(done,
				r.Addr+": values of denied keys are shown until "+report.Until.Local().Format(time.TimeOnly+" MST"))
		}
	}
	return done, err
}
