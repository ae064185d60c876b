package access

import (
	"context"
	"crypto/sha256"
	"time"
)

// pollInterval is the interval at which files are read.
const pollInterval = time.Second

// follower polls files for changes.
//
// It compares contents instead of waiting for notifications, which come late or never on some file
// systems. Reading a few small files takes microseconds.
type follower[R any] struct {
	current [sha256.Size]byte             // hash of the last accepted reading
	tick    func()                        // called before each reading; optional
	read    func() (R, [sha256.Size]byte) // returns a reading and its hash, which includes errors
	accept  func(R)
}

// run polls until ctx ends. It accepts a reading whose hash differs from the current one as soon as
// two consecutive readings have the same hash. Otherwise it could accept half a file, or a new
// certificate with the old key.
func (f follower[R]) run(ctx context.Context) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	last := f.current
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		if f.tick != nil {
			f.tick()
		}
		reading, hash := f.read()
		stable := hash == last
		last = hash
		if stable && hash != f.current {
			f.current = hash
			f.accept(reading)
		}
	}
}
