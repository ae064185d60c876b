package division_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// clientStreams are streams of several clients whose demand for bucket 0 always exceeds their
// share.
type clientStreams struct {
	*rig
	streams []division.StreamID
	client  map[division.StreamID]uint64
	rates   map[division.StreamID]int64
	newest  division.StreamID
}

func (c *clientStreams) open(client uint64) division.StreamID {
	c.newest++
	c.OpenStream(c.now, c.newest, 0, client)
	c.streams = append(c.streams, c.newest)
	c.client[c.newest] = client
	return c.newest
}

func (c *clientStreams) close(stream division.StreamID) {
	c.CloseStream(c.now, stream)
	delete(c.rates, stream)
	for i, s := range c.streams {
		if s == stream {
			c.streams = append(c.streams[:i:i], c.streams[i+1:]...)
		}
	}
}

// round makes all streams report that they admitted their share and denied the same amount, and
// confirms the resulting assignments.
func (c *clientStreams) round() {
	for _, stream := range c.streams {
		n := uint64(c.rates[stream]) * 5 / 3600
		c.report(stream, 0, hundred, n, n+500, 5*time.Second)
	}
	for range 3 {
		for _, stream := range c.streams {
			for _, a := range c.takeAndConfirm(stream) {
				c.rates[stream] = int64(a.Rate)
			}
		}
		c.advance(time.Second)
	}
	c.advance(2 * time.Second)
}

// shareOf returns the share of a client in percent.
func (c *clientStreams) shareOf(client uint64) (sum float64) {
	for stream, rate := range c.rates {
		if c.client[stream] == client {
			sum += float64(rate) / 3600
		}
	}
	return sum
}

func newClientStreams() *clientStreams {
	return &clientStreams{rig: newRig(division.Options{Fresh: true}), client: map[division.StreamID]uint64{}, rates: map[division.StreamID]int64{}}
}

// TestClientsGetEqualShares has clients with different numbers of streams share a limit.
func TestClientsGetEqualShares(t *testing.T) {
	for _, tt := range []struct{ streams [3]int }{{[3]int{100, 1, 0}}, {[3]int{1, 100, 0}}, {[3]int{2, 3, 1}}, {[3]int{10, 1, 30}}} {
		c, clients := newClientStreams(), 0.0
		for i, n := range tt.streams {
			for range n {
				c.open(uint64(i) + 1)
			}
			if n > 0 {
				clients++
			}
		}
		for range 8 {
			c.round()
		}
		for i, n := range tt.streams {
			if got, want := c.shareOf(uint64(i)+1), 100/clients; n > 0 && (got < want*0.95 || got > want*1.05) {
				t.Errorf("clients with %v streams: client %d gets %.1f of 100, want %.1f", tt.streams, i, got, want)
			}
		}
		for _, stream := range c.streams { // the streams of a client also get equal shares
			want := 100 / clients / float64(tt.streams[c.client[stream]-1])
			if got := float64(c.rates[stream]) / 3600; got < want*0.9 || got > want*1.1 {
				t.Errorf("clients with %v streams: stream %d gets %.2f of 100, want %.2f", tt.streams, stream, got, want)
			}
		}
	}
}

// TestReconnectingGainsNothing has a client close its stream and open another one each second,
// while the lost rates are in effect.
func TestReconnectingGainsNothing(t *testing.T) {
	c := newClientStreams()
	c.open(1)
	c.open(2)
	for range 5 {
		c.round()
	}
	for range 60 {
		for _, stream := range c.streams {
			if c.client[stream] == 2 {
				c.close(stream)
				break
			}
		}
		c.open(2)
		c.round()
		if got := c.shareOf(1); got < 45 {
			t.Fatalf("the client that does not reconnect has %.1f of 100, want at least 45", got)
		}
	}
}

// TestRandomStreamsOfClients opens and closes streams of clients at random, and compares the shares
// of the clients.
func TestRandomStreamsOfClients(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 5))
		c := newClientStreams()
		for range 3 {
			for range 1 + random.IntN(20) {
				c.open(1 + random.Uint64N(4))
			}
			for range random.IntN(len(c.streams)) {
				c.close(c.streams[random.IntN(len(c.streams))])
			}
			for range 10 {
				c.round()
			}
			clients := map[uint64]bool{}
			for _, stream := range c.streams {
				clients[c.client[stream]] = true
			}
			for client := range clients {
				want := 100 / float64(len(clients))
				if got := c.shareOf(client); got < want*0.93 || got > want*1.07 {
					t.Error(fmt.Sprintf("seed %d, %d streams: ", seed, len(c.streams)), fmt.Sprintf("client %d has %.1f, want %.1f", client, got, want))
				}
			}
			if wrong := c.CheckInvariants(); wrong != "" {
				t.Fatal(wrong)
			}
		}
	}
}
