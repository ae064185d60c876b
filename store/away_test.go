package store

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A server that ends connections, at once or after it has answered a probe, is asked two or three times a
// second at most.
func TestProbesRest(t *testing.T) {
	for name, answers := range map[string]int{"cannot be reached": -1, "closes at once": 0, "closes after a reply": 1, "answers probes alone": 2} {
		synctest.Test(t, func(t *testing.T) {
			s, err := New(Options{Server: redis.Server{Network: "tcp", Address: "x"}, Timeout: patient, Fallback: Deny})
			if err != nil {
				t.Fatal(err)
			}
			dials := 0
			l := newLane(s.fleet, "x", func(context.Context) (*redis.Conn, error) {
				if dials++; answers < 0 {
					return nil, errors.New("cannot be reached")
				}
				mine, theirs := net.Pipe()
				c := redis.New(mine, "", time.Second)
				go func() {
					defer theirs.Close()
					for r, left := bufio.NewReader(theirs), answers; ; left-- {
						if _, err := commandOf(r); err != nil || left == 0 {
							return
						}
						_, _ = io.WriteString(theirs, "*3\r\n:1795342320\r\n:1\r\n:0\r\n")
					}
				}()
				return c, nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			l.close(t.Context(), l.probe(ctx))
			synctest.Wait()
			t.Logf("%s: %d connections in a minute", name, dials)
			if most := int(time.Minute/(mostProbe*3/4)) + 10; dials > most || dials < 30 {
				t.Errorf("%s: %d connections in a minute, want 30 to %d", name, dials, most)
			}
		})
	}
}
