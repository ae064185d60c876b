package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/live"
)

const ordersDomain = "orders"

// orders are requests in a second domain, whose rules use what operators can configure and change:
// tables, lists of limits, groups of descriptors, refunds, delayed responses, penalties, and rules
// that never deny. Each limit has one counter. A seed chooses some of the kinds.
type orders struct {
	world      *world
	kinds      []*orderKind
	allNothing bool // all_or_nothing

	mu  sync.Mutex
	row uint32 // number of the tenant's row in the table; 0 for no row
}

// orderKind is a kind of requests. A request has a descriptor for each rule.
type orderKind struct {
	name  string
	rules []*orderRule
	waits time.Duration // max_wait
}

// orderRule is a rule. A list has several limits.
type orderRule struct {
	key     string
	limits  []*limit // without candidates
	shadow  bool     // shadow_mode
	penalty time.Duration
	table   bool
	changes []ruleChange
	text    string // of the rule
	other   string // the rule with another algorithm, or no rule
}

// ruleChange is a change that an operator made between two times.
type ruleChange struct {
	kind     string
	from, to time.Time
	replica  string
	n        uint64 // of a row or a refund
	ok       bool   // the reset succeeded

	active, until time.Time // when other rules were certainly active
}

const (
	ordersTenant = "ann"
	table        = "plans"
)

// newOrders chooses two kinds of requests.
func newOrders(w *world) *orders {
	r := rand.New(rand.NewPCG(w.seed, 5))
	o := &orders{world: w, allNothing: r.IntN(2) == 0}
	names := []string{"table", "list", "group", "delayed", "penalty", "shadow", "candidate", "removed", "changed", "refunded"}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names[:2] {
		o.kinds = append(o.kinds, newOrderKind(r, name))
	}
	return o
}

var windowAlgorithms = []string{"fixed_window", "sliding_window", "sliding_log"}

// newOrderLimit returns a limit with one of the algorithms, which does not count denied hits.
func newOrderLimit(r *rand.Rand, key string, algorithms []string) *limit {
	l := newLimit(r, key, algorithms[r.IntN(len(algorithms))], 7, 1, 2, 5)
	l.fields += ", count_refused: false"
	return l
}

func newOrderKind(r *rand.Rand, name string) *orderKind {
	k := &orderKind{name: name}
	algorithms := append([]string{"token_bucket", "leaky_bucket"}, windowAlgorithms...)
	rule := func(key string, algorithms []string) *orderRule {
		o := &orderRule{key: key, limits: []*limit{newOrderLimit(r, key, algorithms)}}
		k.rules = append(k.rules, o)
		return o
	}
	switch name {
	case "table":
		o := rule(name, windowAlgorithms)
		o.table, o.limits[0].fields = true, o.limits[0].fields+", table: "+table
	case "list":
		o := rule(name, algorithms)
		longer := newOrderLimit(r, name, windowAlgorithms)
		longer.window, longer.n = 10*time.Second, 2*o.limits[0].n
		o.limits = append(o.limits, longer)
	case "group":
		rule("first", algorithms)
		rule("second", algorithms)
	case "delayed":
		o := rule(name, []string{"leaky_bucket"})
		k.waits = 300 * time.Millisecond
		o.limits[0].window, o.limits[0].n = time.Second, 5+r.Uint64N(10)
		o.limits[0].demand = 1.5 * float64(o.limits[0].n)
		o.limits[0].fields += fmt.Sprintf(", max_wait: %v", k.waits)
	case "penalty":
		o := rule(name, windowAlgorithms)
		o.penalty = time.Duration(2+r.IntN(3)) * time.Second
		o.limits[0].fields += fmt.Sprintf(", penalty: [%v, 6s]", o.penalty)
		o.limits[0].demand = 1.2 * float64(o.limits[0].n) / o.limits[0].window.Seconds()
	case "shadow":
		rule(name, algorithms).shadow = true
	default:
		rule(name, algorithms)
	}
	for _, o := range k.rules {
		o.text, o.other = o.yaml(name), ""
		if name == "changed" {
			l := *o.limits[0]
			l.algorithm, l.fields = "sliding_log", ""
			if o.limits[0].algorithm == "sliding_log" {
				l.algorithm = "token_bucket"
			}
			o.other = (&orderRule{key: o.key, limits: []*limit{&l}}).yaml(name)
		}
	}
	return k
}

// yaml returns the text of the rule.
func (o *orderRule) yaml(kind string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  - key: %s\n    shadow_mode: %t\n    rate_limits:\n", o.key, o.shadow)
	for i, l := range o.limits {
		fmt.Fprintf(&b, "      - %s", l.yaml(fmt.Sprint(l.key, "-", i)))
	}
	if kind == "candidate" {
		b.WriteString("      - { unit: second, unit_multiplier: 3, requests_per_unit: 1, name: stricter, algorithm: sliding_log, shadow: true }\n")
	}
	return b.String()
}

// rules returns the rule file, in which the rule of a changed kind is replaced.
func (o *orders) rules(changed *orderKind) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\nall_or_nothing: %t\ndescriptors:\n  - key: unlimited\n", ordersDomain, o.allNothing)
	for _, k := range o.kinds {
		for _, rule := range k.rules {
			if k == changed {
				b.WriteString(rule.other)
			} else {
				b.WriteString(rule.text)
			}
		}
	}
	return b.String()
}

// putRow sets or deletes the row of the tenant in a process.
func (o *orders) putRow(p *process) {
	e := mustHave(p.daemon.Tables.Table(table))
	o.mu.Lock()
	n := o.row
	o.mu.Unlock()
	if n == 0 {
		e.Delete([]string{ordersTenant})
	} else {
		panicOn(e.Put([]string{"table"}, []string{ordersTenant}, tables.Row{RequestsPerUnit: n}))
	}
}

// run makes requests and changes until ctx ends.
func (o *orders) run(ctx context.Context) {
	var parties sync.WaitGroup
	for _, k := range o.kinds {
		parties.Go(func() { o.generate(ctx, k) })
		parties.Go(func() { o.operate(ctx, k) })
	}
	parties.Wait()
}

func (o *orders) generate(ctx context.Context, k *orderKind) {
	o.world.request(ctx, ordersDomain+k.name, k.rules[0].limits[0].demand, func(e *envoy, random *rand.Rand) func() {
		hits, disconnects := uint64(1), time.Hour
		if k.name != "penalty" && k.name != "delayed" {
			hits = k.rules[random.IntN(len(k.rules))].limits[0].cost(random)
		}
		if random.IntN(20) == 0 {
			disconnects = time.Duration(1 + random.Int64N(int64(3*time.Millisecond+k.waits)))
		}
		back, after := k.name == "refunded" && random.IntN(3) == 0, time.Duration(random.Int64N(int64(time.Second)))
		return func() {
			if o.send(k, e, hits, disconnects, false) && back {
				time.Sleep(after)
				from := time.Now()
				o.send(k, e, hits, time.Hour, true)
				o.note(k.rules[0], ruleChange{kind: "refund", from: from, to: time.Now(), n: hits})
			}
		}
	})
}

// send makes a call, records its result for each limit, and reports whether it was admitted.
func (o *orders) send(k *orderKind, e *envoy, hits uint64, disconnects time.Duration, refund bool) bool {
	replica, sent := e.pick(), time.Now()
	request := &rls.RateLimitRequest{Domain: ordersDomain}
	for _, rule := range k.rules {
		request.Descriptors = append(request.Descriptors, newDescriptor(rule.key, ordersTenant, hits, refund))
	}
	reply, err := e.call(replica, disconnects, request)
	overall, received := outcomeOf(reply, err), time.Now()
	o.world.record(e.host, "orders %s %d (refund %t) at %s: %s %v", k.name, hits, refund, replica, overall, err)
	if refund {
		return false
	}
	var all []*entry
	for i, rule := range k.rules {
		for _, l := range rule.limits {
			a := &entry{limit: l, tenant: ordersTenant, replica: replica, hits: hits, sent: sent, received: received, outcome: overall}
			if reply != nil {
				a.outcome = admitted
				switch own := reply.GetStatuses()[i].GetCode() == rls.RateLimitResponse_OK; {
				case !own:
					a.outcome = denied
				case overall == denied && o.allNothing:
					a.outcome = refunded
				}
			}
			all = append(all, a)
		}
	}
	o.world.ledger.add(all...)
	return overall == admitted
}

// refunded is the outcome of hits that another limit of the request denies.
const refunded outcome = "refunded"

// note records a change of an operator.
func (o *orders) note(rule *orderRule, c ruleChange) {
	o.mu.Lock()
	defer o.mu.Unlock()
	rule.changes = append(rule.changes, c)
}

// operate makes changes until ctx ends.
func (o *orders) operate(ctx context.Context, k *orderKind) {
	random := rand.New(rand.NewPCG(o.world.seed, hashText("operator"+k.name)))
	for sleep(ctx, time.Duration((3+random.ExpFloat64()*8)*float64(time.Second))) {
		rule, r := k.rules[random.IntN(len(k.rules))], o.world.replicas[random.IntN(len(o.world.replicas))]
		c := ruleChange{from: time.Now(), replica: r.host}
		switch lasts := time.Duration(random.Int64N(int64(4 * time.Second))); {
		case k.name == "delayed" || k.name == "shadow":
			return
		case k.name == "table" && random.IntN(3) > 0:
			c.kind, c.n = "row", 1+random.Uint64N(2*rule.limits[0].n)
			for _, n := range []uint64{c.n, 0} {
				o.mu.Lock()
				o.row = uint32(n)
				o.mu.Unlock()
				for _, r := range o.world.replicas {
					o.putRow(r.process)
				}
				if n > 0 {
					time.Sleep(lasts)
				}
			}
		case k.name == "removed" || k.name == "changed":
			c.kind = "rule"
			c.active, c.until = r.changeOrders(k, lasts)
		default:
			c.kind, c.ok = "reset", o.reset(r, rule)
		}
		c.to = time.Now()
		o.world.record("operator", "%s of %s at %s: %+v", c.kind, rule.key, r.host, c.ok)
		o.note(rule, c)
	}
}

// changeOrders changes or removes the rule of a kind for some time. It returns when the change was
// active.
func (r *replica) changeOrders(k *orderKind, d time.Duration) (active, until time.Time) {
	defer r.operations.acquire()()
	r.changed = k
	r.reload(r.world.rules)
	active = time.Now()
	time.Sleep(d)
	until = time.Now()
	r.changed = nil
	r.reload(r.world.rules)
	return active, until
}

// reset resets the counters of a rule, on the machine of a replica.
func (o *orders) reset(r *replica, rule *orderRule) (ok bool) {
	path := fmt.Sprintf("%s?domain=%s&descriptor=%s=%s", admin.ResetPath, ordersDomain, rule.key, ordersTenant)
	status, body, err := o.world.network.requestHTTP(context.Background(), operatorHost, r.host+debugPort, http.MethodPost, path)
	switch {
	case err != nil || status == http.StatusServiceUnavailable:
		return false
	case status != http.StatusOK:
		o.world.fail("%s answers the reset of a counter with status %d", r.host, status)
		return false
	}
	var done live.Reset
	if err := json.Unmarshal(body, &done); err != nil {
		o.world.fail("%s answers the reset of a counter with %s", r.host, body)
	}
	return done.Done
}
