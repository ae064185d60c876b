package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestMostOver checks that the report lists the keys with the most hits over the limit first, in
// descending order, although another key has more hits. The text has five of them.
func TestMostOver(t *testing.T) {
	var log strings.Builder
	for minute := range 10 { // within the limit of three a minute, with the most hits of all
		for i := range 3 {
			log.WriteString(usersLine(noon.Add(time.Duration(minute)*time.Minute+time.Duration(i)*time.Second), 200, "steady"))
		}
	}
	for user := range 7 {
		for i := range 4 + user {
			log.WriteString(usersLine(noon.Add(20*time.Minute+time.Duration(i)*time.Second), 200, fmt.Sprint("flood", user)))
		}
	}
	found := simulateUsers(t, func(o *Options) { o.ShowValues = true }, logOf("log", log.String()))
	var names []string
	for _, k := range found.Rules.Limits[0].TopKeys {
		names = append(names, fmt.Sprint(k.Name, " ", k.Over, " of ", k.Hits))
	}
	want := "user=flood6 7 of 10, user=flood5 6 of 9, user=flood4 5 of 8, user=flood3 4 of 7, user=flood2 3 of 6, user=flood1 2 of 5, user=flood0 1 of 4, user=steady 0 of 30"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("keys most over the limit: %s, want %s", got, want)
	}
	var text, page strings.Builder
	if err := found.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := found.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "\nmost over user 3/minute:\n  user=flood6  7 of 10 hits  70.0 %\n") || strings.Count(text.String(), "user=flood") != 5 {
		t.Errorf("the text is\n%s", text.String())
	}
	_, first, _ := strings.Cut(page.String(), "<tbody>\n<tr>")
	if !strings.HasPrefix(first, "<td>user=flood6</td><td>10</td><td>7</td><td>70.0 %</td>") {
		t.Errorf("the page's first key is %.200s", first)
	}
}

// TestKeysAreEscaped checks that values from clients cannot control a terminal.
func TestKeysAreEscaped(t *testing.T) {
	log := strings.Repeat(strings.Replace(usersLine(noon, 200, "NAME"), "NAME", "a\x1b[2Jb\u202e", 1), 5)
	found := simulateUsers(t, func(o *Options) {
		o.ShowValues, o.Against = true, []Alternative{{"less.yaml", compile(t, strings.Replace(perUser, ": 3", ": 2", 1))}}
	}, logOf("log", log))
	var text strings.Builder
	if err := found.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(text.String(), "\x1b\u202e") || strings.Count(text.String(), `"user=a\x1b[2Jb\u202e"`) != 2 {
		t.Errorf("the text is\n%q", text.String())
	}
}

// TestSeveralAlternatives compares several alternatives and checks that each has the same result as
// when it is the only one.
func TestSeveralAlternatives(t *testing.T) {
	var log strings.Builder
	for i := range 8 {
		log.WriteString(usersLine(noon.Add(time.Duration(i)*time.Second), 200, "al"))
	}
	other := func(n string) Alternative {
		return Alternative{n + ".yaml", compile(t, strings.Replace(perUser, ": 3", ": "+n, 1))}
	}
	found := simulateUsers(t, func(o *Options) {
		o.RulesName, o.Against = "rules.yaml", []Alternative{other("2"), other("5"), other("9")}
	}, logOf("log", log.String()))
	var got []string
	for _, c := range found.Against {
		got = append(got, fmt.Sprintf("%s denied %d more %d fewer %d", c.Name, c.Denied, c.More, c.Fewer))
	}
	want := "2.yaml denied 6 more 1 fewer 0; 5.yaml denied 3 more 0 fewer 2; 9.yaml denied 0 more 0 fewer 5"
	if strings.Join(got, "; ") != want || found.Rules.Denied != 5 {
		t.Errorf("the alternatives are %q, and the first denies %d, want %s and 5", got, found.Rules.Denied, want)
	}
	var text strings.Builder
	if err := found.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rules       denied          more  fewer  keys over\n", "rules.yaml  5       62.5 %  -     -      1\n", "5.yaml      3       37.5 %  0     2      1\n", "\nagainst 9.yaml:\nlimit "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text does not contain %q:\n%s", want, text.String())
		}
	}
}
