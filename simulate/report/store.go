package report

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Store compares the use of a store that replicas share, without and with blocks.
type Store struct {
	RoundTrip float64 `json:"round_trip_seconds"`
	// Fewer counts the requests that are admitted only with blocks.
	Fewer  uint64       `json:"fewer_denied"`
	Total  StoreUses    `json:"total"`
	Limits []StoreLimit `json:"limits"`
}

// StoreLimit is the use of the store by a limit with requests.
type StoreLimit struct {
	Rule  string `json:"rule"`
	Name  string `json:"name,omitempty"`
	Limit string `json:"limit"`
	Place string `json:"place,omitempty"`
	StoreUses
}

// StoreUses is the use without and with blocks.
type StoreUses struct {
	Off  StoreUse `json:"off"`
	Auto StoreUse `json:"auto"`
}

// StoreUse is the use of the store by some requests.
type StoreUse struct {
	Requests uint64 `json:"requests"`
	// Commands is the number of commands. Limits of a request share its commands.
	Commands float64 `json:"commands"`
	// Waiting counts the requests that wait for the store.
	Waiting uint64 `json:"waiting"`
	Denied  uint64 `json:"denied"`
	// More counts the requests that are denied only with blocks.
	More uint64 `json:"more_denied"`
}

// Add adds the numbers of other requests.
func (u *StoreUse) Add(other StoreUse) {
	u.Requests += other.Requests
	u.Commands += other.Commands
	u.Waiting += other.Waiting
	u.Denied += other.Denied
	u.More += other.More
}

// writeStore writes how blocks change the use of a store.
func (r *Report) writeStore(b *strings.Builder) {
	if r.Store == nil {
		return
	}
	fmt.Fprintf(b, "\n%s\n", r.Store.Text())
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range r.Store.Rows() {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // cannot fail
	if n := len(r.Store.Limits) - shownLimits; n > 0 {
		fmt.Fprintf(b, "and %s; --output json lists them\n", counted(uint64(n), "more limit"))
	}
}

// Text summarizes the effect of blocks.
func (s *Store) Text() string {
	trip := time.Duration(s.RoundTrip * float64(time.Second)).Round(time.Microsecond)
	return fmt.Sprintf("a shared store, round trip %v: with blocks %s more denied, %s fewer", trip, thousands(s.Total.Auto.More), thousands(s.Fewer))
}

// Rows returns the cells of the table: the titles, the limits that are shown, and the total.
func (s *Store) Rows() [][]string {
	rows := [][]string{{"store blocks", "requests", "commands each: off", "auto", "wait: off", "auto", "denied: off", "auto", "more"}}
	row := func(title string, u *StoreUses) {
		n := u.Off.Requests
		each := func(u *StoreUse) string { return fmt.Sprintf("%.3g", u.Commands/float64(max(1, u.Requests))) }
		rows = append(rows, []string{
			title, thousands(n), each(&u.Off), each(&u.Auto), percent(u.Off.Waiting, n), percent(u.Auto.Waiting, u.Auto.Requests),
			thousands(u.Off.Denied), thousands(u.Auto.Denied), thousands(u.Auto.More),
		})
	}
	for i := range s.Limits[:min(len(s.Limits), shownLimits)] {
		l := &s.Limits[i]
		row((&Limit{Rule: l.Rule, Name: l.Name, Limit: l.Limit}).Title(), &l.StoreUses)
	}
	row("total", &s.Total)
	return rows
}
