//go:build torture

package torture

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
)

// expectation is the required effect of an attack.
type expectation struct {
	// ends is true if sluice must close each connection. mayEnd is true if it closes the connection
	// or stops reading, whichever comes first; TestSlowClients checks that it also closes a
	// connection that it does not read.
	ends, mayEnd bool
	// reset and answer are the required results of the attacker's calls. An attacker that still sends
	// when its connection is closed may lose the last frames, and sees resets only if it also
	// receives the GOAWAY behind them.
	reset, answer string
}

// expectations contains the required effect of each attack. In addition, sluice must serve other
// clients and keep its memory bounded. Calls with too many headers fail individually.
var expectations = map[string]expectation{
	"calls without pause":           {ends: true, reset: "REFUSED_STREAM", answer: "0"},
	"HPACK bomb":                    {answer: "8"},
	"headers too large":             {answer: "8"},
	"open streams":                  {ends: true, reset: "REFUSED_STREAM"},
	"DATA of one byte":              {ends: true},
	"requests without an end":       {ends: true},
	"windows that grow":             {}, // calls are answered, with or without reflection
	"rapid reset":                   {},
	"rapid reset of complete calls": {},
	"MadeYouReset":                  {ends: true, reset: "PROTOCOL_ERROR"},
	"CONTINUATION flood":            {ends: true},
	"empty CONTINUATION flood":      {ends: true},
	"PING flood":                    {ends: true},
	"SETTINGS flood":                {ends: true},
	"WINDOW_UPDATE flood":           {ends: true},
	"PRIORITY flood":                {ends: true},
	"flood of unknown frames":       {ends: true},
	"empty DATA flood":              {ends: true},
	"replies never read":            {mayEnd: true},
	"windows of zero":               {ends: true, reset: "REFUSED_STREAM"},
	"two WINDOW_UPDATEs a call":     {mayEnd: true, answer: "0"},
	"windows that open by bytes":    {ends: true},
	"HPACK bomb that stalls":        {ends: true, reset: "REFUSED_STREAM"},
	"MadeYouReset by a window":      {ends: true, reset: "FLOW_CONTROL_ERROR"},
	"flood of acknowledgements":     {ends: true},
	"requests that are not gRPC":    {},
}

// TestAttacks runs each attack while other clients call, in the long tier also over 50 connections. A
// closed connection is opened again.
func TestAttacks(t *testing.T) {
	Parallel(t)
	for _, attack := range hostile.Attacks(hostile.Target{}) {
		t.Run(attack.Name, func(t *testing.T) {
			Parallel(t)
			want, known := expectations[attack.Name]
			if !known {
				t.Fatal("the attack has no entry in expectations")
			}
			h, o := attackSluice(t, attack.Name, 1, attackDuration())
			unanswered := want.answer != "" && o.Statuses[want.answer] == 0
			lost := want.reset != "" && o.GoAway == ""
			if want.ends && o.Ended == 0 || unanswered || lost { // a slow machine needs longer to send enough frames, or to answer
				h, o = attackSluice(t, attack.Name, 1, 10*attackDuration())
			}
			t.Logf("%v: %+v", h, o)
			if !want.mayEnd && want.ends != (o.Ended > 0) {
				t.Errorf("%d of %d connections were closed, want some: %v", o.Ended, o.Connections, want.ends)
			}
			if want.reset != "" && o.GoAway != "" && o.Resets[want.reset] == 0 {
				t.Errorf("streams were reset with %v, want %s", o.Resets, want.reset)
			}
			if want.answer != "" && o.Statuses[want.answer] == 0 {
				t.Errorf("the calls got the statuses %v, want %s", o.Statuses, want.answer)
			}
			h.checkMemory(t, 0)
			if Long() {
				h, o = attackSluice(t, attack.Name, 50, attackDuration())
				t.Logf("with 50 connections: %v: %+v", h, o)
			}
		})
	}
}

func attackSluice(t *testing.T, name string, connections int, d time.Duration) (h harm, o hostile.Outcome) {
	t.Helper()
	h = runUnderAttack(t, Options{}, func(s *sluice.Sluice) {
		o = attack(t, name, s.Addr("grpc"), connections, d)
	}, func(s *sluice.Sluice) {
		// The last connections may have been closed by the end of the attack. Too large headers in
		// several frames close a connection without being counted.
		got := int(suite.Metrics(t, s).Sum("sluice_grpc_connections_closed_total"))
		if least := o.Ended - connections; got < least && name != "CONTINUATION flood" {
			t.Errorf("the metric counts %d closed connections, want at least %d", got, least)
		}
	})
	return h, o
}

func attackDuration() time.Duration { return Pick(time.Second, 3*time.Second) }

func attack(t *testing.T, name, addr string, connections int, d time.Duration) hostile.Outcome {
	t.Helper()
	return outcome(t, child{
		Attack:      name,
		Target:      hostile.Target{Addr: addr, Domain: "torture", Key: "attacker", Value: "a"},
		Connections: connections,
		For:         d,
	}.start(t, 10))
}
