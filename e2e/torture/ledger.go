package torture

import (
	"fmt"
	"sync"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Key names a counter: one of the rules' names and a value.
type Key struct{ Rule, Value string }

// Ledger is the reference that answers are held against: what each counter of one
// run of sluice may say. It is independent of how sluice counts.
//
// Every admitted hit has a number of its own, which follows from the remaining hits
// that the answer names. Numbers rise: a call that began after another had ended has a
// higher one. None is beyond the limit, and no call is denied before the limit is
// reached. A call whose outcome is unknown may or may not have been counted; only such
// calls make the ledger accept more than one answer. A restarted sluice needs a new
// ledger.
//
// Any number of goroutines may use it.
type Ledger struct {
	limit  int
	values int

	mu       sync.Mutex
	accounts map[Key]*account
	faults   []string
	more     int // faults beyond mostFaults
	unheard  int // admitted, as peeks say, though the caller did not hear of it
}

// mostFaults is how many faults are kept with their text.
const mostFaults = 10

// account holds what the answers have told of one counter.
type account struct {
	asked   int // begun, whatever became of it
	passed  int
	denied  int
	unknown int
	highest int    // the highest number of a hit that is known, the limit once denied
	told    []bool // by number: somebody was told
}

// NewLedger returns a ledger of counters with a limit of 1 to 4096, of which a
// [Ledger.Caller] asks for so many of each rule.
func NewLedger(limit, values int) *Ledger {
	if limit < 1 || limit > mostLimit || values < 1 {
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
	a.asked++
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
		case number > a.asked:
			l.faultLocked("%v: admitted as number %d of %d calls", k, number, a.asked)
		case a.told[number]:
			l.faultLocked("%v: two were admitted as number %d: one was not counted", k, number)
		}
		a.told[number] = true
		a.highest = max(a.highest, number)
	case rls.RateLimitResponse_OVER_LIMIT:
		a.denied++
		if remaining != 0 {
			l.faultLocked("%v: denied, but %d remain", k, remaining)
		}
		if a.asked <= l.limit {
			l.faultLocked("%v: denied the %dth call of a limit of %d", k, a.asked, l.limit)
		}
		a.highest = l.limit
	default:
		l.faultLocked("%v: answered %v", k, got.GetCode())
	}
}

// Lost notes that nobody knows what became of a call.
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
	l.unheard += max(0, used-a.passed)
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
	if l.more > 0 {
		faults = append(faults, fmt.Sprintf("and %d more", l.more))
	}
	return faults
}

func (l *Ledger) accountLocked(k Key) *account {
	a := l.accounts[k]
	if a == nil {
		if !isRule(k.Rule) {
			panic("torture: no rule " + k.Rule)
		}
		a = &account{told: make([]bool, l.limit+1)}
		l.accounts[k] = a
	}
	return a
}

func (l *Ledger) faultLocked(format string, args ...any) {
	if len(l.faults) == mostFaults {
		l.more++
		return
	}
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}
