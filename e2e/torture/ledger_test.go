package torture

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Key names a counter: one of the rules' names and a value.
type Key struct{ Rule, Value string }

// Ledger is the reference for answers: it knows what each counter of one run of sluice
// may say. It does not count as sluice does.
//
// Every admitted hit has a number of its own: the limit less the remaining hits that the
// answer names. Numbers rise: a call that began after another had ended has a higher one.
// None is beyond the limit, and no call is denied before the limit is reached. A call
// whose outcome is unknown may or may not have been counted. Only for such calls the
// ledger accepts more than one answer. A restarted sluice needs a new ledger.
//
// Any number of goroutines may use it.
type Ledger struct {
	limit  int
	values int

	mu         sync.Mutex
	accounts   map[Key]*account
	faults     []string
	moreFaults int // faults beyond mostFaults
	unanswered int // admitted, as peeks say, though the caller got no answer
}

// maxFaults is how many faults are kept with their text.
const maxFaults = 10

// account holds what the answers have told of one counter.
type account struct {
	begun    int // begun, whatever became of it
	passed   int
	denied   int
	unknown  int
	highest  int    // the highest number of a hit that is known, the limit once denied
	answered []bool // by number: somebody was told
}

// NewLedger returns a ledger of counters with a limit of 1 to 4096. A [Ledger.Caller]
// asks for this number of values of each rule.
func NewLedger(limit, values int) *Ledger {
	if limit < 1 || limit > maxLimit || values < 1 {
		panic(fmt.Sprintf("torture: a ledger of %d counters of limit %d", values, limit))
	}
	return &Ledger{limit: limit, values: values, accounts: make(map[Key]*account)}
}

// Begin notes that a call with one hit on k is about to be made. Its result goes to
// Answer.
func (l *Ledger) Begin(k Key) (floor int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountLocked(k)
	a.begun++
	return a.highest
}

// Answer checks a call's status.
func (l *Ledger) Answer(k Key, floor int, got *rls.RateLimitResponse_DescriptorStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountLocked(k)
	if name := got.GetCurrentLimit().GetName(); name != k.Rule {
		l.faultLocked("%v: answered with the limit %q", k, name)
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
			l.faultLocked("%v: admitted as number %d after number %d had been answered", k, number, floor)
		case number > a.begun:
			l.faultLocked("%v: admitted as number %d of %d calls", k, number, a.begun)
		case a.answered[number]:
			l.faultLocked("%v: two were admitted as number %d: one was not counted", k, number)
		}
		a.answered[number] = true
		a.highest = max(a.highest, number)
	case rls.RateLimitResponse_OVER_LIMIT:
		a.denied++
		if remaining != 0 {
			l.faultLocked("%v: denied, but %d remain", k, remaining)
		}
		if a.begun <= l.limit {
			l.faultLocked("%v: denied the %dth call of a limit of %d", k, a.begun, l.limit)
		}
		a.highest = l.limit
	default:
		l.faultLocked("%v: answered %v", k, got.GetCode())
	}
}

// Lost notes a call whose outcome is unknown.
func (l *Ledger) Lost(k Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accountLocked(k).unknown++
}

// peek checks what a call of 0 hits says when no call is on its way.
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
		l.faultLocked("%v: has used %d, want %d to %d: %d were admitted, %d denied, of %d nobody knows",
			k, used, least, most, a.passed, a.denied, a.unknown)
	}
	l.unanswered += max(0, used-a.passed)
}

// hits counts the outcomes of the calls of one rule.
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

// keys returns all counters that were asked for.
func (l *Ledger) keys() []Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]Key, 0, len(l.accounts))
	for k := range l.accounts {
		keys = append(keys, k)
	}
	return keys
}

// Faults returns what was wrong so far.
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

// TestLedgerFinds plants what a broken service would say, on a counter of limit 3.
func TestLedgerFinds(t *testing.T) {
	k := Key{"fixed_window", "v"}
	say := func(code rls.RateLimitResponse_Code, remaining uint32) *rls.RateLimitResponse_DescriptorStatus {
		return &rls.RateLimitResponse_DescriptorStatus{
			Code: code, LimitRemaining: remaining,
			CurrentLimit: &rls.RateLimitResponse_RateLimit{Name: k.Rule},
		}
	}
	ok := func(remaining uint32) *rls.RateLimitResponse_DescriptorStatus {
		return say(rls.RateLimitResponse_OK, remaining)
	}
	over := say(rls.RateLimitResponse_OVER_LIMIT, 0)
	ask := func(l *Ledger, answers ...*rls.RateLimitResponse_DescriptorStatus) {
		for _, a := range answers {
			l.Answer(k, l.Begin(k), a)
		}
	}
	atOnce := func(l *Ledger, answers ...*rls.RateLimitResponse_DescriptorStatus) {
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
		"in order":               {func(l *Ledger) { ask(l, ok(2), ok(1), ok(0), over, over); l.peek(k, over) }, ""},
		"at once, in any order":  {func(l *Ledger) { atOnce(l, over, ok(0), ok(2), ok(1)); l.peek(k, ok(0)) }, ""},
		"a peek at what is left": {func(l *Ledger) { ask(l, ok(2)); l.peek(k, ok(2)) }, ""},
		"unknown, counted":       {func(l *Ledger) { l.Begin(k); l.Lost(k); ask(l, ok(1)); l.peek(k, ok(1)) }, ""},
		"unknown, not counted":   {func(l *Ledger) { l.Begin(k); l.Lost(k); ask(l, ok(2)); l.peek(k, ok(2)) }, ""},
		"unknown, counted last":  {func(l *Ledger) { ask(l, ok(2)); l.Begin(k); l.Lost(k); l.peek(k, ok(1)) }, ""},
		"unknown fill it": {func(l *Ledger) {
			l.Begin(k)
			l.Lost(k)
			l.Begin(k)
			l.Lost(k)
			ask(l, ok(0), over)
			l.peek(k, over)
		}, ""},
		"one was not counted":       {func(l *Ledger) { atOnce(l, ok(2), ok(2)) }, "two were admitted as number 1"},
		"counts went back":          {func(l *Ledger) { ask(l, ok(1)) }, "admitted as number 2 of 1"},
		"an older answer":           {func(l *Ledger) { ask(l, ok(2), ok(1)); ask(l, ok(2)) }, "after number 2"},
		"admitted after a denial":   {func(l *Ledger) { ask(l, ok(2), ok(1), ok(0), over, ok(0)) }, "after number 3"},
		"beyond the limit":          {func(l *Ledger) { ask(l, ok(3)) }, "3 of 3 remain"},
		"denied too early":          {func(l *Ledger) { ask(l, ok(2), over) }, "denied the 2th call"},
		"denied with some left":     {func(l *Ledger) { atOnce(l, ok(2), ok(1), ok(0), say(rls.RateLimitResponse_OVER_LIMIT, 1)) }, "but 1 remain"},
		"another's answer":          {func(l *Ledger) { a := ok(2); a.CurrentLimit.Name = "sliding_log"; ask(l, a) }, "sliding_log"},
		"no answer":                 {func(l *Ledger) { ask(l, say(rls.RateLimitResponse_UNKNOWN, 0)) }, "UNKNOWN"},
		"forgotten":                 {func(l *Ledger) { ask(l, ok(2), ok(1)); l.peek(k, ok(3)) }, "has used 0, want 2 to 2"},
		"counted twice":             {func(l *Ledger) { ask(l, ok(2)); l.peek(k, ok(1)) }, "has used 2, want 1 to 1"},
		"more than the unknown":     {func(l *Ledger) { ask(l, ok(2)); l.Begin(k); l.Lost(k); l.peek(k, ok(0)) }, "has used 3, want 1 to 2"},
		"lost before an answer":     {func(l *Ledger) { atOnce(l, ok(1), ok(0)); l.peek(k, ok(0)) }, "of 2 calls"},
		"a hole that nobody made":   {func(l *Ledger) { atOnce(l, ok(2), ok(0), over); l.peek(k, over) }, "denied the 3th call"},
		"places lost to the denied": {func(l *Ledger) { ask(l, ok(2), ok(1)); atOnce(l, over, over); l.peek(k, over) }, "want 3 to 2"},
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
