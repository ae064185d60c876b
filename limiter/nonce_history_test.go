package limiter

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// TestTestNonces checks that the leases of a history differ: see UseTestNonces.
func TestTestNonces(t *testing.T) {
	salt := testNonces.salt(identity.ID{Hi: 1 << 40, Lo: 0x1234_5678_9abc_def0}, 1_700_000_040*Time(time.Second))
	seen := map[uint64]bool{}
	for granted := range uint64(200) {
		nonce := testNonces.nonce(salt, granted)
		if seen[nonce] {
			t.Fatalf("nonce %d is repeated", granted)
		}
		seen[nonce] = true
	}
}
