package answer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-ratelimit/sluice/server/live"
)

// Watch keeps what [Service.State] tells of, until ctx ends.
func (s *Service) Watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.Tick(now)
		}
	}
}

// Tick does what [Service.Watch] does each second.
func (s *Service) Tick(now time.Time) { s.live.Tick(now) }

// State returns what is so at the time now.
func (s *Service) State(now time.Time) *live.State {
	s.Tick(now)
	state := &live.State{
		Version: live.Version, Time: now.UTC(), TopKeys: s.live.Mode(), HashKey: s.live.HashKey(),
		Domains: []live.DomainState{},
	}
	rules := s.rules.Load()
	if rules == nil {
		return state
	}
	state.Config = live.Config{Hash: rules.set.Hash, Limits: len(rules.set.Limits)}
	keys := s.live.Keys()
	for _, name := range rules.set.Domains() {
		state.Domains = append(state.Domains, live.DomainState{Domain: name, DeniedKeys: append([]live.Key{}, keys[name]...)})
	}
	slices.SortStableFunc(state.Domains, func(a, b live.DomainState) int { return cmp.Compare(deniedRate(b), deniedRate(a)) })
	return state
}

func deniedRate(d live.DomainState) (sum float64) {
	for i := range d.DeniedKeys {
		sum += d.DeniedKeys[i].PerSecond
	}
	return sum
}
