package builtin

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// TestTimeouts verifies all time limits. The monitor checks once a second, and clients act half a
// second later, so that each row is exact to the second.
func TestTimeouts(t *testing.T) {
	settings := http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
	long := transport.Limits{KeepaliveTime: time.Hour, MaxConnectionIdle: time.Hour}
	for _, tt := range []struct {
		name   string
		limits transport.Limits
		does   map[string]func(c *timedClient) // by time
		want   []string
	}{
		{"no preface", transport.Limits{}, nil, []string{"5.0 end"}},
		{"half a preface", transport.Limits{ConnectionTimeout: 3 * time.Second}, at("0.5", func(c *timedClient) { c.sendText(http2.ClientPreface[:9]) }), []string{"3.0 end"}},
		{"silence before the client has begun", transport.Limits{ConnectionTimeout: 7 * time.Second, KeepaliveTime: time.Second, KeepaliveTimeout: time.Second}, nil, []string{"7.0 end"}},
		{"no SETTINGS", transport.Limits{}, at("0.5", func(c *timedClient) { c.sendText(http2.ClientPreface) }), []string{"5.0 end"}},
		{"half of the SETTINGS", transport.Limits{}, at("0.5", func(c *timedClient) { c.sendText(settings[:len(http2.ClientPreface)+5]) }), []string{"5.0 end"}},
		{"a frame that is not whole", long, at("0.5", func(c *timedClient) { c.sendText(settings + "\x00\x00\x08\x06\x00") }), []string{"0.5 SETTINGS", "11.0 end"}},
		{"a frame that becomes whole in time", long, map[string]func(c *timedClient){
			"0.5":  func(c *timedClient) { c.sendText(settings + "\x00\x00\x08\x06\x00") },
			"5.5":  func(c *timedClient) { c.sendText("\x00\x00\x00\x00" + "1234") },
			"10.4": func(c *timedClient) { c.sendText("5678") },
		}, []string{"0.5 SETTINGS", "10.4 PING ACK"}},
		{"silence", transport.Limits{KeepaliveTime: 60 * time.Second, KeepaliveTimeout: 10 * time.Second}, at("0.5", func(c *timedClient) { c.sendText(settings) }), []string{"0.5 SETTINGS", "61.0 PING", "71.0 end"}},
		{"silence but for answers", transport.Limits{KeepaliveTime: 60 * time.Second, KeepaliveTimeout: 10 * time.Second}, map[string]func(c *timedClient){
			"0.5":  func(c *timedClient) { c.sendText(settings) },
			"70.5": func(c *timedClient) { c.sendText("\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678") },
		}, []string{"0.5 SETTINGS", "61.0 PING", "131.0 PING", "141.0 end"}},
		{"no call", transport.Limits{MaxConnectionIdle: 30 * time.Second}, map[string]func(c *timedClient){
			"0.5":  func(c *timedClient) { c.sendText(settings) },
			"10.5": func(c *timedClient) { c.addCall(1) },
		}, []string{"0.5 SETTINGS", "10.5 HEADERS 1", "10.5 DATA 1", "10.5 HEADERS 1 END", "41.0 GOAWAY 2147483647", "41.0 PING", "46.0 GOAWAY 1", "46.0 end"}},
		{"no call, and an answer to the PING", transport.Limits{MaxConnectionIdle: 30 * time.Second}, map[string]func(c *timedClient){
			"0.5":  func(c *timedClient) { c.sendText(settings) },
			"30.5": func(c *timedClient) { c.sendText("\x00\x00\x08\x06\x01\x00\x00\x00\x00sluice\x00\x01") },
		}, []string{"0.5 SETTINGS", "30.0 GOAWAY 2147483647", "30.0 PING", "30.5 GOAWAY 0", "30.5 end"}},
		{"a call that is held is a call", transport.Limits{MaxConnectionIdle: 5 * time.Second}, at("0.5", func(c *timedClient) { c.sendText(settings); c.openDelayedCall(1); c.openDelayedCall(3) }), []string{
			"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "10.5 HEADERS 3", "10.5 DATA 3", "10.5 HEADERS 3 END",
			"16.0 GOAWAY 2147483647", "16.0 PING", "21.0 GOAWAY 3", "21.0 end",
		}},
		{"a request that does not end", long, at("0.5", func(c *timedClient) { c.sendText(settings); c.addHeaders(1); c.sendFrames() }), []string{"0.5 SETTINGS", "6.0 RST_STREAM 1 CANCEL"}},
		{"a request that does not end before its deadline", long, at("0.5", func(c *timedClient) {
			c.sendText(settings)
			c.addHeaders(1, "grpc-timeout", "2S")
			c.addHeaders(3, "grpc-timeout", "1H")
			c.sendFrames()
		}), []string{"0.5 SETTINGS", "3.0 RST_STREAM 1 CANCEL", "6.0 RST_STREAM 3 CANCEL"}},
		{"a reply that waits for a window", long, at("0.5", func(c *timedClient) {
			c.sendText(settings)
			c.addFrame(c.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			c.addCall(1)
		}), []string{"0.5 SETTINGS", "0.5 SETTINGS", "0.5 HEADERS 1", "11.0 RST_STREAM 1 CANCEL"}},
		{"output that nobody takes", long, map[string]func(c *timedClient){
			"0.5": func(c *timedClient) { c.sendText(settings) },
			"1.5": func(c *timedClient) { c.stopReading(); c.addCall(1) },
			"2.5": func(c *timedClient) { c.addCall(3) },
		}, []string{"0.5 SETTINGS", "1.5 HEADERS 1", "1.5 DATA 1", "1.5 HEADERS 1 END", "8.0 end"}},
		{"a held reply", long, at("0.5", func(c *timedClient) {
			c.sendText(settings)
			c.openDelayedCall(1)
			c.openDelayedCall(3)
			c.openDelayedCall(5)
		}), []string{
			"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "10.5 HEADERS 3", "10.5 DATA 3", "10.5 HEADERS 3 END", "20.5 HEADERS 5", "20.5 DATA 5", "20.5 HEADERS 5 END",
		}},
		{"a held reply whose client goes away", long, map[string]func(c *timedClient){
			"0.5": func(c *timedClient) { c.sendText(settings); c.openDelayedCall(1); c.openDelayedCall(3) },
			"2.5": func(c *timedClient) {
				c.addFrame(c.write.WriteRSTStream(3, http2.ErrCodeCancel))
				c.sendFrames()
			},
			"3.5": func(c *timedClient) {
				c.wantCancelled(1)
				c.openDelayedCall(5) // it gets the first free place
			},
		}, []string{"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "10.5 HEADERS 5", "10.5 DATA 5", "10.5 HEADERS 5 END"}},
		{"a held reply whose connection ends", long, map[string]func(c *timedClient){
			"0.5": func(c *timedClient) { c.sendText(settings); c.openDelayedCall(1); c.openDelayedCall(3) },
			"2.5": func(c *timedClient) { _ = c.conn.Close() },
			"2.6": func(c *timedClient) { c.wantCancelled(1) },
		}, []string{"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "2.5 end"}},
		{"a drain", long, map[string]func(c *timedClient){
			"0.5": func(c *timedClient) { c.sendText(settings); c.openDelayedCall(1); c.openDelayedCall(3) },
			"2.5": func(c *timedClient) { c.startDrain() },
			"2.6": func(c *timedClient) { c.addCall(5) },         // sent before the client received the GOAWAY
			"8.2": func(c *timedClient) { c.openDelayedCall(7) }, // too late
		}, []string{
			"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "2.5 GOAWAY 2147483647", "2.5 PING", "2.6 HEADERS 5", "2.6 DATA 5", "2.6 HEADERS 5 END",
			"8.0 GOAWAY 5", "10.5 HEADERS 3", "10.5 DATA 3", "10.5 HEADERS 3 END", "10.5 end",
		}},
		{"a drain whose client answers", long, map[string]func(c *timedClient){
			"0.5": func(c *timedClient) { c.sendText(settings); c.openDelayedCall(1); c.openDelayedCall(3) },
			"2.5": func(c *timedClient) { c.startDrain() },
			"2.7": func(c *timedClient) { c.sendText("\x00\x00\x08\x06\x01\x00\x00\x00\x00sluice\x00\x01") },
		}, []string{
			"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "2.5 GOAWAY 2147483647", "2.5 PING", "2.7 GOAWAY 3", "10.5 HEADERS 3", "10.5 DATA 3", "10.5 HEADERS 3 END", "10.5 end",
		}},
		{"a drain of a client that has not begun", long, at("1.5", func(c *timedClient) { c.startDrain() }), []string{"1.5 GOAWAY 2147483647", "1.5 PING", "5.0 end"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTimedClient(t, tt.limits, insecure.NewCredentials())
				defer c.stop()
				if got := c.play(150*time.Second, tt.does); !slices.Equal(got, tt.want) {
					t.Errorf("the client gets\n%q, want\n%q", got, tt.want)
				}
			})
		})
	}
}

// TestHandshakeTimeout connects to TLS and sends nothing.
func TestHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTimedClient(t, transport.Limits{ConnectionTimeout: 7 * time.Second, KeepaliveTime: time.Second, KeepaliveTimeout: time.Second}, slowHandshake{insecure.NewCredentials()})
		defer c.stop()
		if got, want := c.play(20*time.Second, nil), []string{"7.0 end"}; !slices.Equal(got, want) {
			t.Errorf("the client gets %q, want %q", got, want)
		}
	})
}

// TestMaxAgeDuringHandshake has a handshake take longer than the age. The connection must not be
// closed for that, because its calls would fail.
func TestMaxAgeDuringHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTimedClient(t, transport.Limits{KeepaliveTime: time.Hour, MaxConnectionAge: time.Second}, slowHandshake{insecure.NewCredentials()})
		defer c.stop()
		got := c.play(20*time.Second, map[string]func(c *timedClient){
			"2.5": func(c *timedClient) {
				c.sendText("hello" + http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			},
		})
		if want := []string{"2.5 SETTINGS", "3.0 GOAWAY 2147483647", "3.0 PING", "8.0 GOAWAY 0", "8.0 end"}; !slices.Equal(got, want) {
			t.Errorf("the client gets %q, want %q", got, want)
		}
	})
}

// TestGraceStartsWithGoAway has a handshake take longer than the age and the grace period together,
// like a suspended process. The grace period starts with the GOAWAY.
func TestGraceStartsWithGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTimedClient(t, transport.Limits{KeepaliveTime: time.Hour, MaxConnectionAge: time.Second, MaxConnectionAgeGrace: time.Second}, slowHandshake{insecure.NewCredentials()})
		defer c.stop()
		got := c.play(20*time.Second, map[string]func(c *timedClient){
			"3.5": func(c *timedClient) {
				c.sendText("hello" + http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			},
			"3.6": func(c *timedClient) { c.openDelayedCall(1); c.openDelayedCall(3) },
		})
		want := []string{"3.5 SETTINGS", "3.6 HEADERS 1", "3.6 DATA 1", "3.6 HEADERS 1 END", "4.0 GOAWAY 2147483647", "4.0 PING", "5.0 end"}
		if !slices.Equal(got, want) {
			t.Errorf("the client gets %q, want %q", got, want)
		}
	})
}

// TestWaitingConnectionIsNotClosed checks a connection that reads nothing because it waits for a
// store.
func TestWaitingConnectionIsNotClosed(t *testing.T) {
	limits := fillLimits(transport.Limits{MaxConnectionAge: time.Hour, MaxConnectionAgeGrace: time.Minute})
	var w activity
	w.start(0, 0)
	w.gotSettings.Store(true)
	w.openCalls.Store(1)
	w.noteIncompleteFrame(true, true)
	w.incompleteFrameAt.Store(1)
	w.noteHeaderBlock(1, true)
	w.waitsForStore.Store(true)
	const late = 10 * time.Minute
	for range 2 {
		if todo, over, why := w.check(late, &limits); todo != 0 || over || why != nil {
			t.Errorf("it is to do %b, is over: %v, and blamed: %v", todo, over, why)
		}
	}
	w.maxAge = time.Minute
	if todo, over, why := w.check(late, &limits); todo != commandDrainAge || over || why != nil {
		t.Errorf("after its age it is to do %b, is over: %v, and blamed: %v", todo, over, why)
	}
	w.drainAt.Store(int64(2 * time.Minute))
	if _, over, why := w.check(late, &limits); !over || why != nil {
		t.Errorf("it is over after its age and grace: %v, and blamed: %v", over, why)
	}
	w.noteReceived(late)
	w.noteIncompleteFrame(false, true)
	if w.waitsForStore.Load() {
		t.Error("it waits after all input was fed")
	}
}

// slowHandshake are credentials whose handshake starts with the client, like that of TLS.
type slowHandshake struct {
	credentials.TransportCredentials
}

func (w slowHandshake) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		return nil, nil, err
	}
	return w.TransportCredentials.ServerHandshake(c)
}

// TestMaxAge opens a call for longer than the age, which varies by a tenth.
func TestMaxAge(t *testing.T) {
	for _, grace := range []time.Duration{0, 3 * time.Second, time.Hour} {
		t.Run(grace.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTimedClient(t, transport.Limits{KeepaliveTime: time.Hour, MaxConnectionAge: 100 * time.Second, MaxConnectionAgeGrace: grace}, insecure.NewCredentials())
				defer c.stop()
				synctest.Wait()
				w, _ := c.Transport.(*Transport)
				age := w.snapshotConns()[0].activity.maxAge
				if age < 90*time.Second || age > 110*time.Second {
					t.Errorf("the connection's age is %v", age)
				}
				told := (age + time.Second - 1).Truncate(time.Second)
				begins := func(after time.Duration) string { return fmt.Sprintf("%.1f", (told + after).Seconds()) }
				got := c.play(130*time.Second, map[string]func(c *timedClient){
					"0.5": func(c *timedClient) {
						c.sendText(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
					},
					begins(-2500 * time.Millisecond): func(c *timedClient) { c.openDelayedCall(1); c.openDelayedCall(3) },
				})
				before := begins(-2500 * time.Millisecond)
				want := []string{
					"0.5 SETTINGS", before + " HEADERS 1", before + " DATA 1", before + " HEADERS 1 END", begins(0) + " GOAWAY 2147483647", begins(0) + " PING",
				}
				if over := age + grace; grace > 0 && grace < time.Minute { // before the client has acknowledged the PING
					want = append(want, fmt.Sprintf("%.1f end", (over+time.Second-1).Truncate(time.Second).Seconds()))
				} else {
					then := begins(7500 * time.Millisecond)
					want = append(want, begins(5*time.Second)+" GOAWAY 3", then+" HEADERS 3", then+" DATA 3", then+" HEADERS 3 END", then+" end")
				}
				if !slices.Equal(got, want) {
					t.Errorf("the client gets\n%q, want\n%q", got, want)
				}
			})
		})
	}
}

// at returns one action of a client.
func at(when string, does func(c *timedClient)) map[string]func(c *timedClient) {
	return map[string]func(c *timedClient){when: does}
}

// timedClient is a client that records when it receives what.
type timedClient struct {
	*script
	*player
	lines []string
	ended bool
}

func newTimedClient(t *testing.T, limits transport.Limits, creds credentials.TransportCredentials) *timedClient {
	t.Helper()
	limits.ConnectionTimeout = cmp.Or(limits.ConnectionTimeout, 5*time.Second)
	return &timedClient{script: newScript(t), player: newPlayer(t, limits, creds)}
}

// play lets time pass, a tenth of a second at a time.
func (c *timedClient) play(most time.Duration, does map[string]func(c *timedClient)) []string {
	for now := time.Duration(0); now <= most; now += 100 * time.Millisecond {
		when := fmt.Sprintf("%.1f", now.Seconds())
		synctest.Wait()
		if do := does[when]; do != nil {
			do(c)
			c.sendFrames()
		}
		// Until the reader has yielded, and before the next check.
		time.Sleep(time.Millisecond)
		synctest.Wait()
		c.recordState(when)
		time.Sleep(99 * time.Millisecond)
	}
	return c.lines
}

// sendFrames sends the script's frames.
func (c *timedClient) sendFrames() {
	for _, s := range c.steps {
		c.queue <- s
	}
	c.steps = nil
}

func (c *timedClient) sendText(text string) { c.queue <- []byte(text) }

// stopReading has the client read once more.
func (c *timedClient) stopReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = true
}

// startDrain drains the transport.
func (c *timedClient) startDrain() { c.done.Go(c.GracefulStop) }

// wantCancelled checks the number of canceled calls.
func (c *timedClient) wantCancelled(want float64) {
	if got := testutil.ToFloat64(c.metrics.CancelledDelays); got != want {
		c.tb.Errorf("%v calls were canceled during their delay, want %v", got, want)
	}
}

// recordState records the received frames.
func (c *timedClient) recordState(when string) {
	c.mu.Lock()
	came := bytes.Clone(c.came)
	c.came = c.came[:0]
	c.mu.Unlock()
	r := http2.NewFramer(nil, bytes.NewReader(came))
	for f, err := r.ReadFrame(); err == nil; f, err = r.ReadFrame() {
		line := f.Header().Type.String()
		if id := f.Header().StreamID; id != 0 {
			line += fmt.Sprintf(" %d", id)
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				continue
			}
		case *http2.WindowUpdateFrame:
			continue
		case *http2.PingFrame:
			if f.IsAck() {
				line += " ACK"
			}
		case *http2.GoAwayFrame:
			line += fmt.Sprintf(" %d", f.LastStreamID)
		case *http2.RSTStreamFrame:
			line += " " + f.ErrCode.String()
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				line += " END"
			}
		}
		c.lines = append(c.lines, when+" "+strings.TrimSpace(line))
	}
	w, _ := c.Transport.(*Transport)
	if len(w.snapshotConns()) == 0 && !c.ended {
		c.ended = true
		c.lines = append(c.lines, when+" end")
	}
}
