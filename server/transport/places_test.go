package transport

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestAllWatchesAreBounded opens streams until there is no place.
func TestAllWatchesAreBounded(t *testing.T) {
	metrics, err := telemetry.New(telemetry.Options{})
	must.OK(t, err)
	o := Others{calls: metrics.Calls}
	for _, info := range []*grpc.StreamServerInfo{{FullMethod: "/s/Watch"}, {FullMethod: "/s/Talk", IsClientStream: true}} {
		most := maxAllWatches
		if info.IsClientStream {
			most = maxConversations
		}
		for range 2 { // the places are free again
			opened, err := 0, error(nil)
			for ; err == nil && opened <= most; opened++ {
				err = o.Begin(info.FullMethod, info.IsClientStream)
			}
			if opened--; status.Code(err) != codes.ResourceExhausted || opened != most {
				t.Errorf("%s: %d streams are open, then comes %v, want %d and RESOURCE_EXHAUSTED", info.FullMethod, opened, err, most)
			}
			for range opened {
				o.End(info.FullMethod)
			}
		}
	}
}
