package top

import (
	"context"
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
	list   list // the lines of the body
	// selected is the name of the selected item, or empty for the first one.
	selected string
	cursor   int // its index
	body     viewport.Model
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
		then = tea.Tick(m.interval, func(time.Time) tea.Msg { return tick{} })
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
		if m.helping {
			m.helping = false
		} else {
			m.filter.Reset()
		}
		m.body.GotoTop()
	case m.helping:
		m.body, _ = m.body.Update(msg)
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

// keys are the keys of the program.
var keys = struct {
	quit, help, back, filter, sort, all, pause, suspend, up, down, pageUp, pageDown, first, last key.Binding
}{
	quit:     binding("q quit", "q", "Q", "ctrl+d"),
	help:     binding("? help", "?", "h"),
	back:     binding("esc back", "esc"),
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
	return []key.Binding{keys.quit, keys.help, keys.filter, keys.sort, keys.all, keys.pause}
}

// FullHelp implements [help.KeyMap].
func (m *model) FullHelp() [][]key.Binding {
	return [][]key.Binding{{keys.up, keys.down, keys.pageUp, keys.pageDown, keys.first, keys.last}, {keys.filter, keys.sort, keys.all, keys.pause, keys.back, keys.help, keys.quit}}
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
	m.header = nil
	switch {
	case m.helping:
		m.list = list{}
		for text := range strings.Lines(m.help.FullHelpView(m.FullHelp())) {
			m.list.lines = append(m.list.lines, line{text: strings.TrimRight(text, "\n"), item: -1})
		}
	case m.snapshot != nil:
		m.header = m.view.header(m.snapshot.Sum)
		filter := strings.ToLower(m.filter.Value())
		height := m.height - 1 - len(m.header)
		if m.all || filter != "" {
			height = 0
		}
		m.list = m.view.layout(m.snapshot.Sum, m.order, filter, height)
		m.find()
	case m.err != nil:
		m.list = list{}
		for text := range strings.Lines(m.err.Error()) {
			m.list.lines = append(m.list.lines, m.view.wrap(red, "", strings.TrimSpace(text), 3)...)
		}
	}
	m.body.SetWidth(m.view.width)
	m.body.SetHeight(max(1, m.height-1-len(m.header)))
	texts := make([]string, len(m.list.lines))
	for i, l := range m.list.lines {
		texts[i] = l.text
	}
	m.body.SetContentLines(texts)
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
	b.WriteString(m.body.View() + "\n" + m.footer())
	v := tea.NewView(b.String())
	v.AltScreen = true
	return v
}

func (m *model) footer() string {
	switch {
	case m.filter.Focused():
		return m.filter.View()
	case m.paused:
		return "paused: q quit, space resume"
	default:
		return ansi.Truncate(m.help.ShortHelpView(m.ShortHelp()), m.view.width, "")
	}
}
