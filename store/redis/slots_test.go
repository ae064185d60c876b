//go:build more

package redis

import (
	"strconv"
	"testing"

	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// SlotOf agrees with CLUSTER KEYSLOT of a server.
func TestSlotOf(t *testing.T) {
	srv := storetest.Start(t, "--cluster-enabled", "yes")
	for _, key := range []string{
		"", "a", "123456789", "s1{KvY7BUwC8IIbEg4lu7ekBg}f60_1795342320", "p{a}{b}", "{}a", "{{a}}", "a}b{c}", "{a", "domain_key_value_1795342320", "\xff\x00{\x80}",
	} {
		if got, want := strconv.Itoa(int(SlotOf([]byte(key)))), srv.Must("CLUSTER", "KEYSLOT", key); got != want {
			t.Errorf("slotOf(%q) = %s, want %s", key, got, want)
		}
	}
}
