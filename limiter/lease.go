package limiter

import "time"

// Clone returns a copy of p that is not prepared, for a holder that outlives the request. The copy refers to no memory
// that the owner of p may use for another request: its Reserve is a copy too, in the given memory, which is allocated if
// it is nil. A Calendar and a Penalty are shared, since they never change.
func (p *Policy) Clone(reserve *Reserve) Policy {
	bare := *p
	bare.self, bare.ready = nil, prepared{}
	if p.Reserve == nil {
		return bare
	}
	if reserve == nil {
		reserve = new(Reserve)
	}
	*reserve = *p.Reserve
	reserve.hold = p.Reserve.hold.Clone(nil)
	bare.Reserve = reserve
	return bare
}

// LeaseLife returns for how long a lease of p holds something at most.
func (p *Policy) LeaseLife() time.Duration {
	if p.Reserve != nil {
		return p.Reserve.Life()
	}
	return p.Window
}
