package quota_test

import (
	"fmt"
	"net"
	"sync"
	"testing"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/sluice-ratelimit/sluice/e2e/h2client"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// manyUsers returns a report of one request for each of n users that no other stream reports.
func manyUsers(stream, n int) []byte {
	b := appendField(nil, 1, "d")
	for i := range n {
		entry := func(key, value string) string {
			return string(appendField(nil, 1, string(appendField(appendField(nil, 1, key), 2, value))))
		}
		usage := appendField(nil, 1, entry("sluice", "user")+entry("user", fmt.Sprint(stream, "-", i)))
		b = appendField(b, 2, string(append(usage, 3<<3, 1)))
	}
	return b
}

// appendField appends a length-delimited field of less than 128 bytes.
func appendField(b []byte, number byte, value string) []byte {
	return append(append(b, number<<3|2, byte(len(value))), value...)
}

// attack opens connections with the given number of streams each, and reports ids bucket IDs on
// each stream. The clients read up to window bytes of responses on a stream. The connections are
// closed when the test ends.
func attack(tb testing.TB, addr string, window uint32, connections, streams, ids int) {
	tb.Helper()
	var all sync.WaitGroup
	for i := range connections {
		conn, err := new(net.Dialer).DialContext(tb.Context(), "tcp", addr)
		must.OK(tb, err)
		c, err := h2client.New(conn, h2client.Options{Window: window})
		must.OK(tb, err)
		tb.Cleanup(func() {
			c.Close()
			<-c.Done
		})
		all.Go(func() {
			for j := range streams {
				s, err := c.Open(rlqs.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName, 0, nil, func(*h2client.Stream, []byte) {})
				if err != nil {
					return // sluice has closed the connection
				}
				_ = s.Send(manyUsers(i*streams+j, ids)) // sluice may end the stream
			}
		})
	}
	all.Wait()
}
