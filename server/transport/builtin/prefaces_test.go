package builtin

import (
	"net"
	"testing"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestFragmentedPreface has a client of HTTP/2 send its preface byte by byte.
func TestFragmentedPreface(t *testing.T) {
	r := serve(t, service(t, answer.Settings{}, oneRule))
	conn := r.tcp(t)
	c := newRawClient(t, inBytes{conn})
	c.call(nil, 0)
	c.ends(1)
}

// inBytes is a connection that sends byte by byte.
type inBytes struct{ net.Conn }

func (c inBytes) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := c.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}
