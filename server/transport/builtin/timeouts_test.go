package builtin

import (
	"bytes"
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

// TestTimes holds when the built-in transport does what it is time for. The watch looks once a second, and
// clients do half a second later what they do, so that each row says to which second it is exact.
func TestTimes(t *testing.T) {
	settings := http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
	long := transport.Limits{KeepaliveTime: time.Hour, MaxConnectionIdle: time.Hour}
	for _, tt := range []struct {
		name   string
		limits transport.Limits
		does   map[string]func(c *timed) // by when
		want   []string
	}{
		{"no preface", transport.Limits{}, nil, []string{"5.0 end"}},
		{"half a preface", transport.Limits{ConnectionTimeout: 3 * time.Second}, at("0.5", func(c *timed) { c.writes(http2.ClientPreface[:9]) }), []string{"3.0 end"}},
		{"silence before the client has begun", transport.Limits{ConnectionTimeout: 7 * time.Second, KeepaliveTime: time.Second, KeepaliveTimeout: time.Second}, nil, []string{"7.0 end"}},
		{"no SETTINGS", transport.Limits{}, at("0.5", func(c *timed) { c.writes(http2.ClientPreface) }), []string{"5.0 end"}},
		{"half of the SETTINGS", transport.Limits{}, at("0.5", func(c *timed) { c.writes(settings[:len(http2.ClientPreface)+5]) }), []string{"5.0 end"}},
		{"a frame that is not whole", long, at("0.5", func(c *timed) { c.writes(settings + "\x00\x00\x08\x06\x00") }), []string{"0.5 SETTINGS", "11.0 end"}},
		{"a frame that becomes whole in time", long, map[string]func(c *timed){
			"0.5":  func(c *timed) { c.writes(settings + "\x00\x00\x08\x06\x00") },
			"5.5":  func(c *timed) { c.writes("\x00\x00\x00\x00" + "1234") },
			"10.4": func(c *timed) { c.writes("5678") },
		}, []string{"0.5 SETTINGS", "10.4 PING ACK"}},
		{"silence", transport.Limits{KeepaliveTime: 60 * time.Second, KeepaliveTimeout: 10 * time.Second}, at("0.5", func(c *timed) { c.writes(settings) }), []string{"0.5 SETTINGS", "61.0 PING", "71.0 end"}},
		{"silence but for answers", transport.Limits{KeepaliveTime: 60 * time.Second, KeepaliveTimeout: 10 * time.Second}, map[string]func(c *timed){
			"0.5":  func(c *timed) { c.writes(settings) },
			"70.5": func(c *timed) { c.writes("\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678") },
		}, []string{"0.5 SETTINGS", "61.0 PING", "131.0 PING", "141.0 end"}},
		{"no call", transport.Limits{MaxConnectionIdle: 30 * time.Second}, map[string]func(c *timed){
			"0.5":  func(c *timed) { c.writes(settings) },
			"10.5": func(c *timed) { c.ask(1) },
		}, []string{"0.5 SETTINGS", "10.5 HEADERS 1", "10.5 DATA 1", "10.5 HEADERS 1 END", "41.0 GOAWAY 2147483647", "41.0 PING", "46.0 GOAWAY 1", "46.0 end"}},
		{"no call, and an answer to the PING", transport.Limits{MaxConnectionIdle: 30 * time.Second}, map[string]func(c *timed){
			"0.5":  func(c *timed) { c.writes(settings) },
			"30.5": func(c *timed) { c.writes("\x00\x00\x08\x06\x01\x00\x00\x00\x00sluice\x00\x01") },
		}, []string{"0.5 SETTINGS", "30.0 GOAWAY 2147483647", "30.0 PING", "30.5 GOAWAY 0", "30.5 end"}},
		{"a call that is held is a call", transport.Limits{MaxConnectionIdle: 5 * time.Second}, at("0.5", func(c *timed) { c.writes(settings); c.holds(1); c.holds(3) }), []string{
			"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "10.5 HEADERS 3", "10.5 DATA 3", "10.5 HEADERS 3 END",
			"16.0 GOAWAY 2147483647", "16.0 PING", "21.0 GOAWAY 3", "21.0 end",
		}},
		{"a request that does not end", long, at("0.5", func(c *timed) { c.writes(settings); c.headers(1, false, ordinary()...); c.sends() }), []string{"0.5 SETTINGS", "6.0 RST_STREAM 1 CANCEL"}},
		{"a request that does not end before its deadline", long, at("0.5", func(c *timed) {
			c.writes(settings)
			c.headers(1, false, ordinary("grpc-timeout", "2S")...)
			c.headers(3, false, ordinary("grpc-timeout", "1H")...)
			c.sends()
		}), []string{"0.5 SETTINGS", "3.0 RST_STREAM 1 CANCEL", "6.0 RST_STREAM 3 CANCEL"}},
		{"a reply that waits for a window", long, at("0.5", func(c *timed) {
			c.writes(settings)
			c.script.frame(c.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			c.ask(1)
		}), []string{"0.5 SETTINGS", "0.5 SETTINGS", "0.5 HEADERS 1", "11.0 RST_STREAM 1 CANCEL"}},
		{"output that nobody takes", long, map[string]func(c *timed){
			"0.5": func(c *timed) { c.writes(settings) },
			"1.5": func(c *timed) { c.becomesDeaf(); c.ask(1) },
			"2.5": func(c *timed) { c.ask(3) },
		}, []string{"0.5 SETTINGS", "1.5 HEADERS 1", "1.5 DATA 1", "1.5 HEADERS 1 END", "8.0 end"}},
		{"a held reply", long, at("0.5", func(c *timed) { c.writes(settings); c.holds(1); c.holds(3); c.holds(5) }), []string{
			"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "10.5 HEADERS 3", "10.5 DATA 3", "10.5 HEADERS 3 END", "20.5 HEADERS 5", "20.5 DATA 5", "20.5 HEADERS 5 END",
		}},
		{"a held reply whose client goes away", long, map[string]func(c *timed){
			"0.5": func(c *timed) { c.writes(settings); c.holds(1); c.holds(3) },
			"2.5": func(c *timed) { c.script.frame(c.write.WriteRSTStream(3, http2.ErrCodeCancel)); c.sends() },
			"3.5": func(c *timed) {
				c.cancelled(1)
				c.holds(5) // it gets the turn
			},
		}, []string{"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "10.5 HEADERS 5", "10.5 DATA 5", "10.5 HEADERS 5 END"}},
		{"a held reply whose connection ends", long, map[string]func(c *timed){
			"0.5": func(c *timed) { c.writes(settings); c.holds(1); c.holds(3) },
			"2.5": func(c *timed) { _ = c.conn.Close() },
			"2.6": func(c *timed) { c.cancelled(1) },
		}, []string{"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "2.5 end"}},
		{"a drain", long, map[string]func(c *timed){
			"0.5": func(c *timed) { c.writes(settings); c.holds(1); c.holds(3) },
			"2.5": func(c *timed) { c.stops() },
			"2.6": func(c *timed) { c.ask(5) },   // it was on its way
			"8.2": func(c *timed) { c.holds(7) }, // too late
		}, []string{
			"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "2.5 GOAWAY 2147483647", "2.5 PING", "2.6 HEADERS 5", "2.6 DATA 5", "2.6 HEADERS 5 END",
			"8.0 GOAWAY 5", "10.5 HEADERS 3", "10.5 DATA 3", "10.5 HEADERS 3 END", "10.5 end",
		}},
		{"a drain whose client answers", long, map[string]func(c *timed){
			"0.5": func(c *timed) { c.writes(settings); c.holds(1); c.holds(3) },
			"2.5": func(c *timed) { c.stops() },
			"2.7": func(c *timed) { c.writes("\x00\x00\x08\x06\x01\x00\x00\x00\x00sluice\x00\x01") },
		}, []string{
			"0.5 SETTINGS", "0.5 HEADERS 1", "0.5 DATA 1", "0.5 HEADERS 1 END", "2.5 GOAWAY 2147483647", "2.5 PING", "2.7 GOAWAY 3", "10.5 HEADERS 3", "10.5 DATA 3", "10.5 HEADERS 3 END", "10.5 end",
		}},
		{"a drain of a client that has not begun", long, at("1.5", func(c *timed) { c.stops() }), []string{"1.5 GOAWAY 2147483647", "1.5 PING", "5.0 end"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTimed(t, tt.limits, insecure.NewCredentials())
				defer c.stop()
				if got := c.play(150*time.Second, tt.does); !slices.Equal(got, tt.want) {
					t.Errorf("the client gets\n%q, want\n%q", got, tt.want)
				}
			})
		})
	}
}

// TestHandshakesEnd has a client of TLS that says nothing.
func TestHandshakesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTimed(t, transport.Limits{ConnectionTimeout: 7 * time.Second, KeepaliveTime: time.Second, KeepaliveTimeout: time.Second}, waitsForClient{insecure.NewCredentials()})
		defer c.stop()
		if got, want := c.play(20*time.Second, nil), []string{"7.0 end"}; !slices.Equal(got, want) {
			t.Errorf("the client gets %q, want %q", got, want)
		}
	})
}

// TestAgesSpareHandshakes has a handshake last for longer than the connection may. It is no fault of the
// client's, whose calls would fail.
func TestAgesSpareHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTimed(t, transport.Limits{KeepaliveTime: time.Hour, MaxConnectionAge: time.Second}, waitsForClient{insecure.NewCredentials()})
		defer c.stop()
		got := c.play(20*time.Second, map[string]func(c *timed){
			"2.5": func(c *timed) { c.writes("hello" + http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00") },
		})
		if want := []string{"2.5 SETTINGS", "3.0 GOAWAY 2147483647", "3.0 PING", "8.0 GOAWAY 0", "8.0 end"}; !slices.Equal(got, want) {
			t.Errorf("the client gets %q, want %q", got, want)
		}
	})
}

// TestGraceBeginsWhenTheClientIsTold has a handshake last for longer than the age and the grace together.
// So it is with a process that was stopped for a while. The calls in flight have the grace from when the
// client hears that the connection ends.
func TestGraceBeginsWhenTheClientIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTimed(t, transport.Limits{KeepaliveTime: time.Hour, MaxConnectionAge: time.Second, MaxConnectionAgeGrace: time.Second}, waitsForClient{insecure.NewCredentials()})
		defer c.stop()
		got := c.play(20*time.Second, map[string]func(c *timed){
			"3.5": func(c *timed) { c.writes("hello" + http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00") },
			"3.6": func(c *timed) { c.holds(1); c.holds(3) },
		})
		want := []string{"3.5 SETTINGS", "3.6 HEADERS 1", "3.6 DATA 1", "3.6 HEADERS 1 END", "4.0 GOAWAY 2147483647", "4.0 PING", "5.0 end"}
		if !slices.Equal(got, want) {
			t.Errorf("the client gets %q, want %q", got, want)
		}
	})
}

// TestAConnectionThatWaitsIsNotBlamed looks at a connection that reads nothing since it waits for stores.
func TestAConnectionThatWaitsIsNotBlamed(t *testing.T) {
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
		t.Error("it waits after it was fed all that came")
	}
}

// waitsForClient are credentials whose handshake begins with the client, as that of TLS.
type waitsForClient struct {
	credentials.TransportCredentials
}

func (w waitsForClient) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		return nil, nil, err
	}
	return w.TransportCredentials.ServerHandshake(c)
}

// TestAges holds a call for longer than its connection may last. The age is a tenth more or less than
// asked for.
func TestAges(t *testing.T) {
	for _, grace := range []time.Duration{0, 3 * time.Second, time.Hour} {
		t.Run(grace.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTimed(t, transport.Limits{KeepaliveTime: time.Hour, MaxConnectionAge: 100 * time.Second, MaxConnectionAgeGrace: grace}, insecure.NewCredentials())
				defer c.stop()
				synctest.Wait()
				w, _ := c.Transport.(*Transport)
				age := w.snapshotConns()[0].activity.maxAge
				if age < 90*time.Second || age > 110*time.Second {
					t.Errorf("the connection's age is %v", age)
				}
				told := (age + time.Second - 1).Truncate(time.Second)
				begins := func(after time.Duration) string { return fmt.Sprintf("%.1f", (told + after).Seconds()) }
				got := c.play(130*time.Second, map[string]func(c *timed){
					"0.5": func(c *timed) {
						c.writes(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
					},
					begins(-2500 * time.Millisecond): func(c *timed) { c.holds(1); c.holds(3) },
				})
				before := begins(-2500 * time.Millisecond)
				want := []string{
					"0.5 SETTINGS", before + " HEADERS 1", before + " DATA 1", before + " HEADERS 1 END", begins(0) + " GOAWAY 2147483647", begins(0) + " PING",
				}
				if over := age + grace; grace > 0 && grace < time.Minute { // before the client has answered the PING
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

// at is what a client does once.
func at(when string, does func(c *timed)) map[string]func(c *timed) {
	return map[string]func(c *timed){when: does}
}

// timed is a client of the built-in transport that writes down when it gets what.
type timed struct {
	*script
	*player
	lines []string
	ended bool
}

func newTimed(t *testing.T, limits transport.Limits, creds credentials.TransportCredentials) *timed {
	t.Helper()
	return &timed{script: newScript(t), player: newPlayer(t, limits, creds)}
}

// play lets time pass, a tenth of a second at a time.
func (c *timed) play(most time.Duration, does map[string]func(c *timed)) []string {
	for now := time.Duration(0); now <= most; now += 100 * time.Millisecond {
		when := fmt.Sprintf("%.1f", now.Seconds())
		synctest.Wait()
		if do := does[when]; do != nil {
			do(c)
			c.sends()
		}
		// Until the reader has parked, and not as long as until the next look.
		time.Sleep(time.Millisecond)
		synctest.Wait()
		c.looks(when)
		time.Sleep(99 * time.Millisecond)
	}
	return c.lines
}

// sends sends what the script has.
func (c *timed) sends() {
	for _, s := range c.steps {
		c.queue <- s.bytes
	}
	c.steps = nil
}

func (c *timed) writes(text string) { c.queue <- []byte(text) }

// holds is a call whose reply is held, if others were held before.
func (c *timed) holds(stream uint32) {
	c.headers(stream, false, ordinary("grpc-timeout", "60S")...)
	c.data(stream, true, held(c.tb))
}

// becomesDeaf has the client read once more.
func (c *timed) becomesDeaf() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = true
}

// stops has the transport drain.
func (c *timed) stops() { c.done.Go(c.GracefulStop) }

// cancelled fails the test if it were not so many.
func (c *timed) cancelled(want float64) {
	if got := testutil.ToFloat64(c.metrics.CancelledDelays); got != want {
		c.tb.Errorf("%v calls were cancelled while they were held, want %v", got, want)
	}
}

// looks writes down what has come.
func (c *timed) looks(when string) {
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
