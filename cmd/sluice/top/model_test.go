package top

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/sluice-ratelimit/sluice/server/live"
)

// program drives a model without a terminal.
type program struct{ *model }

// newProgram returns a program of 80 columns and 24 lines that has fetched a state.
func newProgram(s *live.State) *program {
	p := &program{model: newModel(context.Background(), &Service{}, time.Second)}
	p.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	p.send(fetched{&Snapshot{Sum: s}, nil})
	return p
}

func (p *program) send(msg tea.Msg) tea.Cmd {
	_, then := p.Update(msg)
	return then
}

// press presses keys: names such as enter, or characters.
func (p *program) press(names ...string) (then tea.Cmd) {
	special := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp, "end": tea.KeyEnd, "space": tea.KeySpace}
	for _, name := range names {
		key := tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
		if code, ok := special[name]; ok {
			key = tea.KeyPressMsg{Code: code}
		}
		then = p.send(key)
	}
	return then
}

// screen returns the screen without styles.
func (p *program) screen() string { return ansi.Strip(p.View().Content) }

// selection returns the selected lines.
func (p *program) selection() string {
	var all []string
	for _, l := range p.list.lines {
		if l.item == p.cursor && l.item >= 0 {
			all = append(all, l.text)
		}
	}
	return strings.Join(all, "\n")
}

// manyKeys returns a state with the given numbers of domains, and of keys and limits in each.
func manyKeys(domains, each int) *live.State {
	s := &live.State{Config: live.Config{Hash: "cafe", Limits: domains * each}, Status: live.Status{Calls: 1}}
	for i := range domains {
		d := live.DomainState{Domain: fmt.Sprintf("domain-%d", i)}
		for j := range each {
			rate := live.Rate{Hits: float64(1000 - j), Denied: float64(100 - j)}
			d.DeniedKeys = append(d.DeniedKeys, live.Key{Hash: fmt.Sprintf("%d-%d", i, j), Rule: "user", Limit: "5/hour", PerSecond: rate.Denied})
			d.Rules = append(d.Rules, live.RuleState{Rule: fmt.Sprintf("rule-%d", j), Limit: "5/hour", Rate: rate, Line: &live.Line{Seconds: 10, Hits: make([]uint32, 30), Denied: make([]uint32, 30)}})
		}
		s.Domains = append(s.Domains, d)
	}
	return s
}

// TestScreenFits verifies that each screen fills the terminal and no more.
func TestScreenFits(t *testing.T) {
	p := newProgram(manyKeys(3, 50))
	for _, keys := range [][]string{nil, {"a"}, {"end"}, {"/", "x"}, {"esc"}} {
		p.press(keys...)
		for _, size := range []tea.WindowSizeMsg{{Width: 80, Height: 24}, {Width: 200, Height: 60}, {Width: 40, Height: 5}} {
			p.send(size)
			lines := strings.Split(p.screen(), "\n")
			if len(lines) != size.Height {
				t.Errorf("after %q %d lines on a terminal of %d:\n%s", keys, len(lines), size.Height, p.screen())
			}
			for _, line := range lines {
				if n := ansi.StringWidth(line); n > size.Width {
					t.Errorf("after %q %d columns on a terminal of %d: %s", keys, n, size.Width, line)
				}
			}
		}
	}
}

// TestSelectionIsVisible verifies that the list shows the selected row, also before the first key,
// and after its sections have changed.
func TestSelectionIsVisible(t *testing.T) {
	s := newState()
	for i := range 20 {
		c := s.Conditions[0]
		c.Text += strconv.Itoa(i)
		s.Conditions = append(s.Conditions, c)
	}
	p := newProgram(s)
	visible := func(about string) {
		t.Helper()
		if first := strings.TrimSpace(strings.Split(p.selection(), "\n")[0]); first == "" || !strings.Contains(p.screen(), first) {
			t.Errorf("%s: the screen lacks %q:\n%s", about, first, p.screen())
		}
	}
	for _, key := range []string{"a", "G", "a", "g", "a", "pgdown", "esc", "a", "g", "down", "down", "down"} {
		p.press(key)
		visible(key)
	}
	p.press("G")
	p.send(tea.WindowSizeMsg{Width: 40, Height: 5})
	visible("a small terminal")
}

// TestFooterFits verifies that the footer has all keys on a terminal of 80 columns.
func TestFooterFits(t *testing.T) {
	p := newProgram(newState())
	for _, keys := range [][]string{nil, {"enter"}, {"esc", "/", strings.Repeat("x", 90), "enter"}} {
		p.press(keys...)
		lines := strings.Split(p.screen(), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); !strings.HasSuffix(last, "q quit") {
			t.Errorf("after %q the footer is %q", keys, last)
		}
	}
}

// TestSelectionFollowsItsItem verifies that the first key is selected until the user selects
// another, which then stays selected.
func TestSelectionFollowsItsItem(t *testing.T) {
	p := newProgram(manyKeys(1, 3))
	expect := func(want string) {
		t.Helper()
		if got := p.selection(); !strings.Contains(got, want) {
			t.Errorf("selected is %q, want %q", got, want)
		}
	}
	worse := func(key int) {
		s := manyKeys(1, 3)
		s.Domains[0].DeniedKeys[key].PerSecond = 1000
		p.send(fetched{&Snapshot{Sum: s}, nil})
	}
	expect("#0-0")
	worse(2)
	expect("#0-2")
	p.press("down")
	expect("#0-0")
	worse(0)
	expect("#0-0")
	p.press("end")
	expect("rule-2")
	p.press("down", "pgdown")
	expect("rule-2")
	p.press("g")
	expect("#0-0")
	gone := manyKeys(1, 3)
	gone.Domains[0].DeniedKeys = gone.Domains[0].DeniedKeys[1:]
	p.send(fetched{&Snapshot{Sum: gone}, nil})
	expect("#0-1")
}

// TestFilter verifies the keys for the list of keys and limits.
func TestFilter(t *testing.T) {
	p := newProgram(manyKeys(3, 20))
	if text := p.screen(); !strings.Contains(text, "(8 of 60)") {
		t.Errorf("the screen lacks the number of keys:\n%s", text)
	}
	p.press("/", "n", "-", "2")
	if text := p.screen(); !strings.Contains(text, "#2-18") || strings.Contains(text, "domain-1") {
		t.Errorf("the filter n-2 shows\n%s", text)
	}
	p.press("enter", "esc")
	if text := p.screen(); !strings.Contains(text, "domain-1") {
		t.Errorf("without a filter the screen is\n%s", text)
	}
	p.press("a", "end")
	if text := p.screen(); !strings.Contains(text, "rule-19 ") {
		t.Errorf("the last item is not on the screen:\n%s", text)
	}
}

// TestFilterNamesItsBounds verifies that the filter reports that it matches no row, that there are
// limits that it does not search, and that it does not hide conditions.
func TestFilterNamesItsBounds(t *testing.T) {
	s := manyKeys(1, 3)
	s.Conditions = newState().Conditions
	p := newProgram(s)
	if p.press("/", "x"); !strings.Contains(p.screen(), "no row matches") || !strings.Contains(p.screen(), "[rules_rejected]") || strings.Contains(p.screen(), "others") {
		t.Errorf("the screen is\n%s", p.screen())
	}
	s.Config.Omitted = 7
	p = newProgram(s)
	if p.press("/", "x"); !strings.Contains(p.screen(), "7 others with fewer hits, not searched") || !strings.Contains(p.screen(), "no row matches") {
		t.Errorf("the screen is\n%s", p.screen())
	}
	p.press("esc")
	p.press("/")
	p.send(tea.PasteMsg{Content: "rule-1"})
	if text := p.screen(); !strings.Contains(text, "domain-0: rule-1 5/hour") || strings.Contains(text, "no row matches") || !strings.Contains(text, "not searched") {
		t.Errorf("after a paste the screen is\n%s", text)
	}
}

// TestQuit verifies each way to quit.
func TestQuit(t *testing.T) {
	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}, {Code: 'd', Mod: tea.ModCtrl}} {
		then := newProgram(newState()).send(key)
		if then == nil {
			t.Fatalf("%s does not quit", key)
		}
		if _, ok := then().(tea.QuitMsg); !ok {
			t.Errorf("%s does not quit", key)
		}
	}
	p := newProgram(newState())
	if then := p.press("/", "q"); then != nil && p.filter.Value() != "q" {
		t.Error("q in a filter is not a character")
	}
}

// TestErrorIsShown verifies the screen while no replica responds. The error may contain text of
// another program.
func TestErrorIsShown(t *testing.T) {
	p := newProgram(newState())
	gone := fetched{nil, errors.New("query a:1: \x1b[2Jrefused\nquery b:1: refused")}
	p.send(gone)
	if text := p.screen(); !strings.Contains(text, "no answer, the state of ") || !strings.Contains(text, ": query a:1: ?[2Jrefused") || !strings.Contains(text, "shop") {
		t.Errorf("after the service has died the screen is\n%s", text)
	}
	p.snapshot = nil
	p.send(gone)
	if text := p.screen(); !strings.Contains(text, "query a:1: ?[2Jrefused") || !strings.Contains(text, "query b:1: refused") || strings.Contains(text, "shop") {
		t.Errorf("the screen is\n%s", text)
	}
}
