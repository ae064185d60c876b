package limiter

import "time"

// Clone returns an unprepared copy of p that may outlive the request. The copy refers to no memory
// that the owner of p may reuse: its Reserve is copied to the given memory, which is allocated if
// nil. Calendar and Penalty are immutable and shared.
func (p *Policy) Clone(reserve *Reserve) Policy {
	bare := *p
	bare.self = nil
	bare.ready = prepared{}
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

// LeaseLife returns the maximum life of a lease of p.
func (p *Policy) LeaseLife() time.Duration {
	if p.Reserve != nil {
		return p.Reserve.Life()
	}
	return p.Window
}
