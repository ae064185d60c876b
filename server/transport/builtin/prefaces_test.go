package builtin

import (
	"net"
	"testing"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestFragmentedPreface has an HTTP/2 client send its preface byte by byte.
func TestFragmentedPreface(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, oneRule))
	conn := r.tcp(t)
	c := newRawClient(t, bytewiseConn{conn})
	c.call(nil, 0)
	c.readEnds(1)
}

// bytewiseConn is a connection that sends byte by byte.
type bytewiseConn struct{ net.Conn }

func (c bytewiseConn) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := c.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}
