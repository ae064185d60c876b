package transport

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestOpenStreamsAreBounded opens streams until one is rejected, twice.
func TestOpenStreamsAreBounded(t *testing.T) {
	metrics, err := telemetry.New(telemetry.Options{})
	must.OK(t, err)
	o := Interceptors{calls: metrics.Calls}
	for _, info := range []*grpc.StreamServerInfo{{FullMethod: "/s/Watch"}, {FullMethod: "/s/Talk", IsClientStream: true}} {
		most := maxServerStreams
		if info.IsClientStream {
			most = maxClientStreams
		}
		for range 2 { // all were released
			opened, err := 0, error(nil)
			for ; err == nil && opened <= most; opened++ {
				err = o.BeginStream(info.FullMethod, info.IsClientStream)
			}
			if opened--; status.Code(err) != codes.ResourceExhausted || opened != most {
				t.Errorf("%s: %d streams are open, then comes %v, want %d and RESOURCE_EXHAUSTED", info.FullMethod, opened, err, most)
			}
			for range opened {
				o.EndStream(info.FullMethod)
			}
		}
	}
}
