package access

import (
	"context"
	"crypto/sha256"
	"time"
)

// follow reads files at an interval until ctx ends. It calls take with a reading whose hash differs from that of the reading taken
// before, once two readings in a row have this hash. Otherwise half a file, or a new certificate with the old key, could be taken. Taken is the
// hash of the files in use. Read returns a reading and its hash, which includes errors.
//
// It compares contents instead of waiting for notifications, which come late or never on some file systems. A few small files are
// read in microseconds.
func follow[R any](ctx context.Context, interval time.Duration, taken [sha256.Size]byte, read func() (R, [sha256.Size]byte), take func(R)) {
	poll := time.NewTicker(interval)
	defer poll.Stop()
	last := taken
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		now, hash := read()
		stable := hash == last
		last = hash
		if stable && hash != taken {
			taken = hash
			take(now)
		}
	}
}
