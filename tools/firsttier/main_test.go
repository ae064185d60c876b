package main

import (
	"slices"
	"strings"
	"testing"
)

const forbiddenCall = `package p

func TestSleeps(t *testing.T) {
	time.Sleep(1)
	client := &http.Client{Timeout: 1}
	if time.Now().After(end) {
		return
	}
}
`

const inBubble = `package p

func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { time.Sleep(1); onlyInBubble() })
	withClock(t, func() { time.Sleep(1); onlyInBubble() })
}

func withClock(t *testing.T, run func()) {
	synctest.Test(t, func(t *testing.T) { run() })
}

func onlyInBubble() { time.Sleep(1) }
`

const fromBoth = `package p

func TestBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { both() })
	both()
}

func both() { conn.SetDeadline(end) }
`

const callback = `package p

func TestCallback(t *testing.T) { serve(slow{}) }

type slow struct{}

func (slow) ServeHTTP(w http.ResponseWriter, r *http.Request) { <-time.After(1) }
`

const unreachable = `package p

func TestNothing(t *testing.T) {}

func unused() { time.Sleep(1) }
`

func TestFindings(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		want         []string
	}{
		{"a forbidden call", forbiddenCall, []string{
			"4 TestSleeps time.Sleep", "5 TestSleeps http.Client{Timeout}", "6 TestSleeps After with time.Now()",
		}},
		{"the same in a bubble", inBubble, nil},
		{"a helper reached from both", fromBoth, []string{"8 both SetDeadline"}},
		{"a method that implements an interface", callback, []string{"7 ServeHTTP time.After"}},
		{"a tagged file", "//go:build more\n\n" + forbiddenCall, nil},
		{"a tag that is not set", "//go:build !more\n\n" + unreachable, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPackage("p")
			if err := p.add("p/p_test.go", []byte(tt.source)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range p.findings() {
				_, line, _ := strings.Cut(f.String(), ":")
				number, _, _ := strings.Cut(line, ":")
				got = append(got, number+" "+f.function+" "+f.call)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("findings %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFirstTier(t *testing.T) {
	for _, tt := range []struct {
		dir, name string
		want      bool
	}{
		{"store", "a_test.go", true},
		{"store", "a.go", false},
		{"store/storetest", "a.go", true},
		{"e2e", "a_test.go", false},
		{"e2e/quota", "a_test.go", false},
		{proxy, "a_test.go", true},
		{proxy, "a.go", true},
		{"store/storetest", "a.lua", false},
	} {
		if got := inFirstTier(tt.dir, tt.name); got != tt.want {
			t.Errorf("inFirstTier(%q, %q) is %t, want %t", tt.dir, tt.name, got, tt.want)
		}
	}
}
