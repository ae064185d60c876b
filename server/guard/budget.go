package guard

import "time"

// A connection may do so many odd acts at once, more with time, with each call
// that it begins and with each that is answered. nghttp2 has the same two first
// numbers for its resets; Envoy counts frames of a kind against streams opened.
//
// A call begun gives credit before it is answered: gRPC's C core, under Python,
// C++, Ruby and PHP, sends two WINDOW_UPDATEs with every call, so that a burst of
// 500 calls would otherwise end the connection.
const (
	oddActsAtOnce    = 1000
	oddActsPerSecond = 33
	oddActsPerCall   = 4
	oddActsPerAnswer = 10
)

// smallFrame is the size below which a DATA or CONTINUATION frame that ends
// nothing is an odd act: each costs more memory than it brings.
const smallFrame = 1024

// budget is how many odd acts a connection has left.
type budget struct {
	left     int
	refilled time.Time // when time last gave some
}

func newBudget(now time.Time) budget { return budget{left: oddActsAtOnce, refilled: now} }

func (b *budget) spend(n int) { b.left -= n }

func (b *budget) give(n int) { b.left = min(oddActsAtOnce, b.left+n) }

// spent reports whether nothing is left. It asks for the time only if so.
func (b *budget) spent(now func() time.Time) bool {
	if b.left >= 0 {
		return false
	}
	t := now()
	if more := int(min(t.Sub(b.refilled), time.Minute).Seconds() * oddActsPerSecond); more > 0 {
		b.refilled = t
		b.give(more)
	}
	return b.left < 0
}
