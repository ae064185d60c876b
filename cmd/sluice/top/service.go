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
	// Timeout bounds each request to a replica. Zero means no bound.
	Timeout time.Duration
}

// bound returns a context for a request to a replica.
func (s *Service) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.Timeout)
}

// Replica is a replica that has responded.
type Replica struct {
	*client.Debug

	State *live.State
}

// Snapshot is the state of a service at a time.
type Snapshot struct {
	// Sum is the aggregated state of the replicas.
	Sum      *live.State
	Replicas []Replica
	// Missing are the replicas that have not responded.
	Missing []Missing
}

// Missing is a replica that has not responded.
type Missing struct {
	Addr string
	Err  error
}

// Fetch returns the state of the replicas that respond, nil if none does, and the errors of the
// others.
func (s *Service) Fetch(ctx context.Context) (*Snapshot, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var all []*client.Debug
	var errs []error
	snapshot := &Snapshot{}
	for _, addr := range s.Addrs {
		replicas, err := s.dial(ctx, addr)
		if err != nil {
			errs = append(errs, err)
			snapshot.Missing = append(snapshot.Missing, Missing{addr, err})
		}
		all = append(all, replicas...)
	}
	states := make([]*live.State, len(all))
	failed := make([]error, len(all))
	var wait sync.WaitGroup
	for i, replica := range all {
		wait.Go(func() {
			states[i], failed[i] = replica.State(ctx, maxLimits)
		})
	}
	wait.Wait()
	var addrs []string
	var available []*live.State
	for i, state := range states {
		if state != nil {
			addrs = append(addrs, all[i].Addr)
			available = append(available, state)
			snapshot.Replicas = append(snapshot.Replicas, Replica{all[i], state})
		} else {
			errs = append(errs, fmt.Errorf("query %s: %w", all[i].Addr, failed[i]))
			snapshot.Missing = append(snapshot.Missing, Missing{all[i].Addr, failed[i]})
		}
	}
	err := errors.Join(errs...)
	if len(available) == 0 {
		return nil, err
	}
	snapshot.Sum = live.Sum(addrs, available)
	for _, m := range snapshot.Missing {
		missing := telemetry.NewCondition(telemetry.NoAnswer, snapshot.Sum.Time)
		missing.Replica = m.Addr
		missing.Text = "no answer: " + m.Err.Error()
		snapshot.Sum.Conditions = append([]telemetry.Condition{missing}, snapshot.Sum.Conditions...)
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
	snapshot, err := s.Fetch(ctx)
	if snapshot == nil {
		return nil, err
	}
	for _, r := range snapshot.Replicas {
		one, cancel := s.bound(ctx)
		report, failed := r.Unmask(one, d)
		cancel()
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
