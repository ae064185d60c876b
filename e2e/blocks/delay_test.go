package blocks_test

import (
	"net"
	"sync"
	"time"
)

// A delayedConn delays written data, like a long line: data that is written while other data is on
// its way takes no longer.
type delayedConn struct {
	net.Conn

	delay  time.Duration
	onWay  chan delayedData
	closed chan struct{}
	close  func() error
}

type delayedData struct {
	due   time.Time
	bytes []byte
}

// delayWrites returns a connection whose writes reach conn after the given time. Closing it drops
// the data on its way.
func delayWrites(conn net.Conn, delay time.Duration) *delayedConn {
	d := &delayedConn{Conn: conn, delay: delay, onWay: make(chan delayedData, 1<<12), closed: make(chan struct{})}
	d.close = sync.OnceValue(func() error {
		close(d.closed)
		return conn.Close()
	})
	go d.deliver()
	return d
}

func (d *delayedConn) Write(data []byte) (int, error) {
	select {
	case d.onWay <- delayedData{time.Now().Add(d.delay), append([]byte(nil), data...)}:
		return len(data), nil
	case <-d.closed:
		return 0, net.ErrClosed
	}
}

func (d *delayedConn) Close() error { return d.close() }

// deliver writes data when it is due.
func (d *delayedConn) deliver() {
	for {
		select {
		case data := <-d.onWay:
			select {
			case <-time.After(time.Until(data.due)):
			case <-d.closed:
				return
			}
			if _, err := d.Conn.Write(data.bytes); err != nil {
				_ = d.Close()
				return
			}
		case <-d.closed:
			return
		}
	}
}
