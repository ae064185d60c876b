package store

import (
	flags "flag"
	"testing"

	"go.uber.org/goleak"
)

// Most tests wait for servers, so more of them run in parallel than there are cores, unless go test
// has -parallel. Tests that measure this process are not parallel, and run before these.
func TestMain(m *testing.M) {
	if err := flags.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
