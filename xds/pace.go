package xds

import "time"

// burst is how many responses a server may send at once.
const burst = 10

// pace lets a server change the rules in a burst, and then once an interval: each change is compiled, loaded and
// logged, and a server in trouble may alternate between two.
type pace struct {
	interval time.Duration
	full     time.Time // when it lets a burst through again
}

// wait returns how long the response that came at the time now has to wait.
func (p *pace) wait(now time.Time) time.Duration {
	if p.full.Before(now) {
		p.full = now
	}
	p.full = p.full.Add(p.interval)
	return max(0, p.full.Sub(now)-burst*p.interval)
}
