package torture

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Key identifies a counter by the name of a rule and a value.
type Key struct{ Rule, Value string }

// Ledger is the reference model for replies: it knows which replies each counter of one run of
// sluice may give. It does not use sluice's algorithms.
//
// Every admitted hit has a unique number: the limit minus the remaining hits in the reply. A call
// that starts after another one has ended gets a higher number. No number exceeds the limit, and no
// call is denied before the limit is reached. A call whose outcome is unknown may or may not have
// been counted; only for such calls the ledger accepts more than one reply. A restarted sluice
// needs a new ledger.
//
// A Ledger is safe for concurrent use.
type Ledger struct {
	limit  int
	values int

	mu         sync.Mutex
	accounts   map[Key]*account
	faults     []string
	moreFaults int // number of faults beyond maxFaults
	unanswered int // number of hits admitted according to a peek, without a reply to the caller
}

// maxFaults is the number of faults that are kept with their text.
const maxFaults = 10

// account is the state of one counter according to the replies.
type account struct {
	begun    int // number of started calls
	passed   int
	denied   int
	unknown  int
	highest  int    // highest known number of a hit; the limit after a denial
	answered []bool // whether a reply had the number
}

// NewLedger returns a ledger of counters with a limit of 1 to 4096. A [Ledger.Caller] uses the
// given number of values for each rule.
func NewLedger(limit, values int) *Ledger {
	if limit < 1 || limit > maxLimit || values < 1 {
		panic(fmt.Sprintf("torture: a ledger of %d counters of limit %d", values, limit))
	}
	return &Ledger{limit: limit, values: values, accounts: make(map[Key]*account)}
}

// Begin records the start of a call with one hit on k. Its result is passed to Answer.
func (l *Ledger) Begin(k Key) (floor int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountLocked(k)
	a.begun++
	return a.highest
}

// Answer checks the status in a reply.
func (l *Ledger) Answer(k Key, floor int, got *rls.RateLimitResponse_DescriptorStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountLocked(k)
	if name := got.GetCurrentLimit().GetName(); name != k.Rule {
		l.faultLocked("%v: a reply has the limit %q", k, name)
	}
	remaining := int(got.GetLimitRemaining())
	switch got.GetCode() {
	case rls.RateLimitResponse_OK:
		a.passed++
		number := l.limit - remaining
		switch {
		case number < 1 || number > l.limit:
			l.faultLocked("%v: admitted, %d of %d remain", k, remaining, l.limit)
			return
		case number <= floor:
			l.faultLocked("%v: admitted as number %d although number %d was in an earlier reply", k, number, floor)
		case number > a.begun:
			l.faultLocked("%v: admitted as number %d of %d calls", k, number, a.begun)
		case a.answered[number]:
			l.faultLocked("%v: two hits were admitted as number %d: one was not counted", k, number)
		}
		a.answered[number] = true
		a.highest = max(a.highest, number)
	case rls.RateLimitResponse_OVER_LIMIT:
		a.denied++
		if remaining != 0 {
			l.faultLocked("%v: denied, but %d remain", k, remaining)
		}
		if a.begun <= l.limit {
			l.faultLocked("%v: denied call %d with a limit of %d", k, a.begun, l.limit)
		}
		a.highest = l.limit
	default:
		l.faultLocked("%v: answered %v", k, got.GetCode())
	}
}

// Lost records a call whose outcome is unknown.
func (l *Ledger) Lost(k Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accountLocked(k).unknown++
}

// peek checks the reply to a call of 0 hits while no other call is in flight.
func (l *Ledger) peek(k Key, got *rls.RateLimitResponse_DescriptorStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountLocked(k)
	used := l.limit
	if got.GetCode() == rls.RateLimitResponse_OK {
		used = l.limit - int(got.GetLimitRemaining())
	}
	least, most := min(l.limit, max(a.passed, a.highest)), min(l.limit, a.passed+a.unknown)
	if a.denied > 0 {
		least = l.limit
	}
	if used < least || used > most {
		l.faultLocked("%v: has used %d hits, want %d to %d: %d were admitted, %d denied, %d unknown",
			k, used, least, most, a.passed, a.denied, a.unknown)
	}
	l.unanswered += max(0, used-a.passed)
}

// hits counts the calls of one rule by outcome.
type hits struct{ passed, denied, unknown int }

func (l *Ledger) hits(rule string) (h hits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, a := range l.accounts {
		if k.Rule == rule {
			h.passed += a.passed
			h.denied += a.denied
			h.unknown += a.unknown
		}
	}
	return h
}

// keys returns all counters that were used.
func (l *Ledger) keys() []Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]Key, 0, len(l.accounts))
	for k := range l.accounts {
		keys = append(keys, k)
	}
	return keys
}

// Faults returns the faults found so far.
func (l *Ledger) Faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	faults := append([]string(nil), l.faults...)
	if l.moreFaults > 0 {
		faults = append(faults, fmt.Sprintf("and %d more", l.moreFaults))
	}
	return faults
}

func (l *Ledger) accountLocked(k Key) *account {
	a := l.accounts[k]
	if a == nil {
		if !isRule(k.Rule) {
			panic("torture: no rule " + k.Rule)
		}
		a = &account{answered: make([]bool, l.limit+1)}
		l.accounts[k] = a
	}
	return a
}

func (l *Ledger) faultLocked(format string, args ...any) {
	if len(l.faults) == maxFaults {
		l.moreFaults++
		return
	}
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// TestLedgerFinds feeds the ledger with replies of a broken service, for a counter with limit 3.
func TestLedgerFinds(t *testing.T) {
	k := Key{"fixed_window", "v"}
	reply := func(code rls.RateLimitResponse_Code, remaining uint32) *rls.RateLimitResponse_DescriptorStatus {
		return &rls.RateLimitResponse_DescriptorStatus{
			Code: code, LimitRemaining: remaining,
			CurrentLimit: &rls.RateLimitResponse_RateLimit{Name: k.Rule},
		}
	}
	ok := func(remaining uint32) *rls.RateLimitResponse_DescriptorStatus {
		return reply(rls.RateLimitResponse_OK, remaining)
	}
	over := reply(rls.RateLimitResponse_OVER_LIMIT, 0)
	answerEach := func(l *Ledger, answers ...*rls.RateLimitResponse_DescriptorStatus) {
		for _, a := range answers {
			l.Answer(k, l.Begin(k), a)
		}
	}
	answerConcurrent := func(l *Ledger, answers ...*rls.RateLimitResponse_DescriptorStatus) {
		floors := make([]int, len(answers))
		for i := range answers {
			floors[i] = l.Begin(k)
		}
		for i, a := range answers {
			l.Answer(k, floors[i], a)
		}
	}
	for name, tt := range map[string]struct {
		play func(l *Ledger)
		want string
	}{
		"in order":                     {func(l *Ledger) { answerEach(l, ok(2), ok(1), ok(0), over, over); l.peek(k, over) }, ""},
		"concurrent and in any order":  {func(l *Ledger) { answerConcurrent(l, over, ok(0), ok(2), ok(1)); l.peek(k, ok(0)) }, ""},
		"a peek at the remaining hits": {func(l *Ledger) { answerEach(l, ok(2)); l.peek(k, ok(2)) }, ""},
		"unknown, counted":             {func(l *Ledger) { l.Begin(k); l.Lost(k); answerEach(l, ok(1)); l.peek(k, ok(1)) }, ""},
		"unknown, not counted":         {func(l *Ledger) { l.Begin(k); l.Lost(k); answerEach(l, ok(2)); l.peek(k, ok(2)) }, ""},
		"unknown, counted last":        {func(l *Ledger) { answerEach(l, ok(2)); l.Begin(k); l.Lost(k); l.peek(k, ok(1)) }, ""},
		"unknown calls fill it": {func(l *Ledger) {
			l.Begin(k)
			l.Lost(k)
			l.Begin(k)
			l.Lost(k)
			answerEach(l, ok(0), over)
			l.peek(k, over)
		}, ""},
		"a hit was not counted":              {func(l *Ledger) { answerConcurrent(l, ok(2), ok(2)) }, "two hits were admitted as number 1"},
		"a count that is too high":           {func(l *Ledger) { answerEach(l, ok(1)) }, "admitted as number 2 of 1"},
		"an older number":                    {func(l *Ledger) { answerEach(l, ok(2), ok(1)); answerEach(l, ok(2)) }, "although number 2"},
		"admitted after a denial":            {func(l *Ledger) { answerEach(l, ok(2), ok(1), ok(0), over, ok(0)) }, "although number 3"},
		"beyond the limit":                   {func(l *Ledger) { answerEach(l, ok(3)) }, "3 of 3 remain"},
		"denied too early":                   {func(l *Ledger) { answerEach(l, ok(2), over) }, "denied call 2 "},
		"denied with hits left":              {func(l *Ledger) { answerConcurrent(l, ok(2), ok(1), ok(0), reply(rls.RateLimitResponse_OVER_LIMIT, 1)) }, "but 1 remain"},
		"another's answer":                   {func(l *Ledger) { a := ok(2); a.CurrentLimit.Name = "sliding_log"; answerEach(l, a) }, "sliding_log"},
		"no answer":                          {func(l *Ledger) { answerEach(l, reply(rls.RateLimitResponse_UNKNOWN, 0)) }, "UNKNOWN"},
		"forgotten":                          {func(l *Ledger) { answerEach(l, ok(2), ok(1)); l.peek(k, ok(3)) }, "has used 0 hits, want 2 to 2"},
		"counted twice":                      {func(l *Ledger) { answerEach(l, ok(2)); l.peek(k, ok(1)) }, "has used 2 hits, want 1 to 1"},
		"more hits than unknown calls":       {func(l *Ledger) { answerEach(l, ok(2)); l.Begin(k); l.Lost(k); l.peek(k, ok(0)) }, "has used 3 hits, want 1 to 2"},
		"a hit that was lost before a reply": {func(l *Ledger) { answerConcurrent(l, ok(1), ok(0)); l.peek(k, ok(0)) }, "of 2 calls"},
		"a number without a reply":           {func(l *Ledger) { answerConcurrent(l, ok(2), ok(0), over); l.peek(k, over) }, "denied call 3 "},
		"hits lost to denials":               {func(l *Ledger) { answerEach(l, ok(2), ok(1)); answerConcurrent(l, over, over); l.peek(k, over) }, "want 3 to 2"},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(3, 1)
			tt.play(l)
			got := strings.Join(l.Faults(), "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("faults are %q, want %q", got, tt.want)
			}
		})
	}
}
