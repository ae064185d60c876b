package limiter

import "time"

// Bare returns p as it was before it was prepared: a copy that keeps nothing of what is around p, for whoever keeps
// it longer than p is in force.
func (p *Policy) Bare() Policy {
	bare := *p
	bare.self, bare.ready = nil, prepared{}
	return bare
}

// HeldFor returns for how long a lease of p holds something at most.
func (p *Policy) HeldFor() time.Duration {
	if p.Reserve != nil {
		return p.Reserve.Life()
	}
	return p.Window
}
