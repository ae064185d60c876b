package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// IsInteractive reports whether a terminal of the type $TERM, or nil for another output, can show
// the state until the user quits.
func IsInteractive(terminal *os.File, kind string) bool { return terminal != nil && !isDumb(kind) }

// isDumb reports whether terminals of a type cannot move the cursor.
func isDumb(kind string) bool {
	return kind == "dumb" || kind == "" && runtime.GOOS != "windows"
}

// Show shows the state on a terminal and refreshes it, until ctx ends or the user quits.
func (s *Service) Show(ctx context.Context, in io.Reader, terminal *os.File, interval time.Duration) error {
	environment := os.Environ()
	if os.Getenv("NO_COLOR") != "" {
		environment = append(environment, "NO_COLOR=1") // the library only knows 1
	}
	m := newModel(ctx, s, interval, supportsUTF8(os.Getenv))
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(terminal), tea.WithEnvironment(environment), tea.WithoutSignalHandler()}
	if _, err := tea.NewProgram(m, options...).Run(); ctx.Err() == nil {
		return err
	}
	return nil // a signal is a way to quit
}

// model is the model of the program in the sense of Bubble Tea.
type model struct {
	ctx      context.Context //nolint:containedctx // commands are functions without arguments
	service  *Service
	interval time.Duration
	view     view
	height   int

	// snapshot is nil until a replica has responded, and err has the errors of the others.
	snapshot *Snapshot
	err      error
	paused   bool

	order  order
	all    bool // show all items of each section
	filter textinput.Model
	header []line
	footer []string // styled
	list   list     // the lines of the body
	// selected is the name of the selected item, or empty for the first one.
	selected string
	cursor   int // its index
	body     viewport.Model
	details  *details // nil while the list is shown
	reset    *reset   // to confirm, or with its result; nil if there is none
	helping  bool
	help     help.Model
}

// fetched is the message with the result of [Service.Fetch].
type fetched struct {
	snapshot *Snapshot
	err      error
}

// tick is the message that starts the next query.
type tick struct{}

func newModel(ctx context.Context, s *Service, interval time.Duration, utf8 bool) *model {
	m := &model{ctx: ctx, service: s, interval: interval, view: view{width: 80, utf8: utf8}, height: 24, body: viewport.New(), filter: textinput.New(), help: help.New()}
	m.filter.Prompt = "/"
	m.filter.CharLimit = 100
	m.filter.SetStyles(textinput.Styles{})
	m.filter.SetVirtualCursor(false)
	m.help.Styles = help.Styles{ShortKey: styles[strong], ShortDesc: styles[faint], FullKey: styles[strong]}
	m.help.ShortSeparator = "  "
	m.help.Ellipsis = ""
	m.body.StyleLineFunc = m.style
	return m
}

// Init implements [tea.Model].
func (m *model) Init() tea.Cmd { return m.fetch }

func (m *model) fetch() tea.Msg {
	snapshot, err := m.service.Fetch(m.ctx)
	return fetched{snapshot, err}
}

// Update implements [tea.Model].
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var then tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.view.width, m.height = max(40, msg.Width), max(5, msg.Height)
	case fetched:
		m.snapshot, m.err = msg.snapshot, msg.err
		refresh := m.updateDetails()
		then = tea.Batch(refresh, tea.Tick(m.interval, func(time.Time) tea.Msg { return tick{} }))
	case explained:
		if m.details != nil && m.details.name() == msg.name {
			m.details.counters = msg.answers
		}
	case reset:
		m.reset = &msg
	case tick:
		if m.paused {
			return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return tick{} })
		}
		return m, m.fetch
	case tea.KeyPressMsg:
		then = m.press(msg)
	}
	m.arrange()
	return m, then
}

// press handles a key.
func (m *model) press(msg tea.KeyPressMsg) tea.Cmd {
	if msg.String() == "ctrl+c" {
		return tea.Quit
	}
	if r := m.reset; r != nil {
		m.reset = nil
		if _, asks := r.question(); asks {
			if msg.String() == "y" {
				return m.request(*r)
			}
			return nil
		}
	}
	if m.filter.Focused() {
		switch msg.String() {
		case "esc":
			m.filter.Reset()
			m.filter.Blur()
		case "enter":
			m.filter.Blur()
		case "up", "down":
			m.move(msg)
		default:
			var then tea.Cmd
			m.filter, then = m.filter.Update(msg)
			m.selected = "" // the first match
			m.body.GotoTop()
			return then
		}
		return nil
	}
	switch {
	case key.Matches(msg, keys.quit):
		return tea.Quit
	case key.Matches(msg, keys.suspend):
		return tea.Suspend
	case key.Matches(msg, keys.pause):
		m.paused = !m.paused
	case key.Matches(msg, keys.help):
		m.helping = !m.helping
		m.body.GotoTop()
	case key.Matches(msg, keys.back):
		switch {
		case m.helping:
			m.helping = false
		case m.details != nil:
			m.details = nil
		default:
			m.filter.Reset()
			m.selected = ""
		}
		m.body.GotoTop()
	case m.helping:
		m.body, _ = m.body.Update(msg)
	case key.Matches(msg, keys.reset):
		if i, ok := m.current(); ok {
			return m.previewReset(i)
		}
	case m.details != nil:
		m.body, _ = m.body.Update(msg)
	case key.Matches(msg, keys.open):
		if i, ok := m.current(); ok {
			m.details = &details{item: i}
			m.body.GotoTop()
			return m.explain(i)
		}
	case key.Matches(msg, keys.filter):
		return m.filter.Focus()
	case key.Matches(msg, keys.sort):
		m.order = (m.order + 1) % orders
	case key.Matches(msg, keys.all):
		m.all = !m.all
	default:
		m.move(msg)
	}
	return nil
}

// current returns the item that is open or selected.
func (m *model) current() (item, bool) {
	switch {
	case m.snapshot == nil:
		return item{}, false
	case m.details != nil:
		return m.details.item, true
	case m.cursor < len(m.list.items):
		return m.list.items[m.cursor], true
	}
	return item{}, false
}

// updateDetails updates the open item from the last state.
func (m *model) updateDetails() tea.Cmd {
	if m.details == nil || m.snapshot == nil {
		return nil
	}
	found, ok := find(m.snapshot.Sum, m.details.name())
	m.details.gone = !ok
	if ok {
		m.details.item = found
	}
	return m.explain(m.details.item)
}

// keys are the keys of the program.
var keys = struct {
	quit, help, open, back, reset, filter, sort, all, pause, suspend, up, down, pageUp, pageDown, first, last key.Binding
}{
	quit:     binding("q quit", "q", "Q", "ctrl+d"),
	help:     binding("? help", "?", "h"),
	open:     binding("enter details", "enter"),
	back:     binding("esc back", "esc"),
	reset:    binding("r reset", "r"),
	filter:   binding("/ filter", "/"),
	sort:     binding("s sort", "s"),
	all:      binding("a all", "a"),
	pause:    binding("space pause", "space", "p"),
	suspend:  binding("", "ctrl+z"),
	up:       binding("up/k up", "up", "k"),
	down:     binding("down/j down", "down", "j"),
	pageUp:   binding("pgup/b page up", "pgup", "b"),
	pageDown: binding("pgdn/f page down", "pgdown", "f"),
	first:    binding("g first", "g", "home"),
	last:     binding("G last", "G", "end"),
}

func binding(text string, all ...string) key.Binding {
	name, about, _ := strings.Cut(text, " ")
	return key.NewBinding(key.WithKeys(all...), key.WithHelp(name, about))
}

// ShortHelp implements [help.KeyMap].
func (m *model) ShortHelp() []key.Binding {
	if m.helping || m.details != nil {
		return []key.Binding{keys.back, keys.reset, keys.pause, keys.help, keys.quit}
	}
	return []key.Binding{keys.open, keys.filter, keys.sort, keys.all, keys.reset, keys.pause, keys.help, keys.quit}
}

// FullHelp implements [help.KeyMap].
func (m *model) FullHelp() [][]key.Binding {
	return [][]key.Binding{{keys.up, keys.down, keys.pageUp, keys.pageDown, keys.first, keys.last}, {keys.open, keys.back, keys.filter, keys.sort, keys.all, keys.reset, keys.pause, keys.help, keys.quit}}
}

// move moves the cursor. Beyond the last item it scrolls.
func (m *model) move(msg tea.KeyPressMsg) {
	to := m.cursor
	switch {
	case key.Matches(msg, keys.up):
		to--
	case key.Matches(msg, keys.down):
		to++
	case key.Matches(msg, keys.pageUp):
		to = m.itemAt(m.lineOf(to) - m.body.Height())
	case key.Matches(msg, keys.pageDown):
		to = m.itemAt(m.lineOf(to) + m.body.Height())
	case key.Matches(msg, keys.first):
		to = 0
	case key.Matches(msg, keys.last):
		to = len(m.list.items) - 1
	default:
		return
	}
	if len(m.list.items) == 0 {
		return
	}
	m.cursor = min(max(to, 0), len(m.list.items)-1)
	m.selected = m.list.items[m.cursor].name()
	first := m.lineOf(m.cursor)
	last := first
	for last+1 < len(m.list.lines) && m.list.lines[last+1].item == m.cursor {
		last++
	}
	if m.cursor == 0 {
		first = 0 // with the title
	}
	if first < m.body.YOffset() {
		m.body.SetYOffset(first)
	} else if last >= m.body.YOffset()+m.body.Height() {
		m.body.SetYOffset(last - m.body.Height() + 1)
	}
}

// lineOf returns the first line of an item.
func (m *model) lineOf(item int) int {
	for i, l := range m.list.lines {
		if l.item == item {
			return i
		}
	}
	return 0
}

// itemAt returns the first item at or after a line.
func (m *model) itemAt(at int) int {
	for _, l := range m.list.lines[min(max(at, 0), len(m.list.lines)):] {
		if l.item >= 0 {
			return l.item
		}
	}
	return len(m.list.items) - 1
}

// arrange updates the list and the body after any change.
func (m *model) arrange() {
	m.help.SetWidth(m.view.width)
	m.footer = m.footerLines()
	m.header = nil
	if m.snapshot != nil && !m.helping {
		m.header = m.view.header(m.snapshot.Sum)
		m.header = m.header[:min(len(m.header), m.height/2)]
	}
	height := max(1, m.height-len(m.footer)-len(m.header))
	switch {
	case m.helping:
		m.list = list{lines: m.helpLines()}
	case m.snapshot != nil && m.details != nil:
		m.list = list{lines: m.view.details(m.details, m.snapshot)}
	case m.snapshot != nil:
		filter, share := strings.ToLower(m.filter.Value()), height
		if m.all || filter != "" {
			share = 0
		}
		m.list = m.view.layout(m.snapshot.Sum, m.order, filter, share)
		m.find()
	case m.err != nil:
		m.list = list{}
		for text := range strings.Lines(m.err.Error()) {
			m.list.lines = append(m.list.lines, m.view.wrap(red, "", strings.TrimSpace(text), 3)...)
		}
	}
	m.body.SetWidth(m.view.width)
	m.body.SetHeight(height)
	texts := make([]string, len(m.list.lines))
	for i, l := range m.list.lines {
		texts[i] = l.text
	}
	m.body.SetContentLines(texts)
}

// helpLines returns the keys and the meaning of the columns.
func (m *model) helpLines() (lines []line) {
	for _, group := range m.FullHelp() {
		for _, k := range group {
			lines = append(lines, m.view.line(plain, fmt.Sprintf("%-8s %s", k.Help().Key, k.Help().Desc)))
		}
	}
	for _, text := range []string{
		"", "Rates are averages of the last five to ten seconds.",
		"DENIED/S and DENIED of a key count denied descriptors, SHARE is the part of all denials of its domain.",
		"HITS/S and DENIED/S of a limit count hits, in the unit in parentheses, or in requests.",
		"NO RULE MATCHES lists descriptors that are not limited.",
		"Times are in the time zone of the status line.",
	} {
		lines = append(lines, m.view.wrap(plain, "", text, 3)...)
	}
	return lines
}

// find sets the cursor to the selected item. If it has disappeared, the cursor keeps its position.
func (m *model) find() {
	if m.selected == "" {
		m.cursor = 0
		for i := range m.list.items {
			if m.list.items[i].key != nil || m.list.items[i].limit != nil {
				m.cursor = i // the most denied key
				return
			}
		}
		return
	}
	for i := range m.list.items {
		if m.list.items[i].name() == m.selected {
			m.cursor = i
			return
		}
	}
	m.cursor = min(m.cursor, max(0, len(m.list.items)-1))
}

// style returns the style of a line of the body.
func (m *model) style(i int) lipgloss.Style {
	style := styles[m.list.lines[i].tone]
	if m.list.lines[i].item == m.cursor {
		style = style.Reverse(true)
	}
	return style
}

// View implements [tea.Model].
func (m *model) View() tea.View {
	var b strings.Builder
	for _, l := range m.header {
		b.WriteString(styles[l.tone].Render(l.text) + "\n")
	}
	b.WriteString(m.body.View())
	for _, text := range m.footer {
		b.WriteString("\n" + text)
	}
	v := tea.NewView(b.String())
	v.AltScreen = true
	return v
}

func (m *model) footerLines() (texts []string) {
	switch {
	case m.reset != nil:
		text, asks := m.reset.question()
		tone := strong
		if !asks && m.reset.err != nil {
			tone = red
		}
		for _, l := range m.view.wrap(tone, "", text, 4) {
			texts = append(texts, styles[l.tone].Render(l.text))
		}
		return texts[:min(len(texts), m.height/2)]
	case m.filter.Focused():
		return []string{m.filter.View()}
	case m.paused:
		return []string{"paused: q quit, space resume"}
	default:
		text := m.help.ShortHelpView(m.ShortHelp())
		if filter := m.filter.Value(); filter != "" {
			text = "/" + filter + "  " + text
		}
		return []string{ansi.Truncate(text, m.view.width, "")}
	}
}
