package store

import (
	flags "flag"
	"testing"

	"go.uber.org/goleak"
)

// Most tests wait for servers, so more of them run at once than there are cores. Those that measure this process
// run alone, before these. go test -parallel has the last word.
func TestMain(m *testing.M) {
	if err := flags.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
