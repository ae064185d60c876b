package top

import (
	"context"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/term"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
)

const (
	listKeys    = "arrows select  enter details  / filter  a all rows  p pause  q quit"
	filterKeys  = "  esc end filter  enter details  q quit"
	detailsKeys = "esc back  p pause  q quit"
)

// IsInteractive reports whether a terminal of the type $TERM, or nil for another output, can show
// the state until the user quits. Keys are only read from a terminal.
func IsInteractive(in io.Reader, terminal *os.File, kind string) bool {
	keyboard, ok := in.(*os.File)
	return ok && term.IsTerminal(keyboard.Fd()) && terminal != nil && !isDumb(kind)
}

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
	m := newModel(ctx, s, interval)
	options := []tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(terminal), tea.WithEnvironment(environment), tea.WithoutSignalHandler(),
	}
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

	// snapshot is the last one, nil until a replica has responded. It is stale if none responds any more.
	// err has the errors of replicas.
	snapshot *Snapshot
	stale    bool
	err      error
	paused   bool

	all    bool // show all items of each section
	filter textinput.Model
	// selected is the id of the selected item, empty for the most denied key, and cursor its index.
	selected string
	cursor   int
	// details is nil while the body shows the list.
	details *details
	// explaining is the id of the key about whose counter the replicas are asked, or empty.
	explaining string
	list       list // its lines are those of the body
	body       viewport.Model

	header []line
}

// fetched is the message with the result of [Service.Fetch].
type fetched struct {
	snapshot *Snapshot
	err      error
}

// tick is the message that starts the next query.
type tick struct{}

func newModel(ctx context.Context, s *Service, interval time.Duration) *model {
	m := &model{
		ctx: ctx, service: s, interval: interval, view: view{width: 80}, height: 24, body: viewport.New(), filter: textinput.New(),
	}
	m.filter.Prompt = "/"
	m.filter.CharLimit = 100
	m.body.StyleLineFunc = m.style
	return m
}

// Init implements [tea.Model].
func (m *model) Init() tea.Cmd { return m.fetch }

func (m *model) fetch() tea.Msg {
	snapshot, err := m.service.Fetch(m.ctx)
	return fetched{snapshot, err}
}

func (m *model) wait() tea.Cmd {
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return tick{} })
}

// Update implements [tea.Model].
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var then tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.view.width = max(40, msg.Width)
		m.height = max(5, msg.Height)
	case fetched:
		m.err = msg.err
		if msg.snapshot != nil {
			m.snapshot = msg.snapshot
		}
		m.stale = msg.snapshot == nil && m.snapshot != nil
		then = m.wait()
		if d := m.details; d != nil && msg.snapshot != nil {
			if found, ok := m.view.find(m.snapshot.Sum, d.id); ok {
				d.item = found
				d.gone = false
			} else {
				d.gone = true
			}
			then = tea.Batch(then, m.explain(d.item))
		}
	case tick:
		then = m.fetch
		if m.paused {
			then = m.wait()
		}
	case explained:
		if m.explaining == msg.id {
			m.explaining = ""
		}
		if m.details != nil && m.details.id == msg.id {
			m.details.counters = msg.answers
		}
	case tea.KeyPressMsg:
		then = m.press(msg)
	case tea.PasteMsg:
		if m.filter.Focused() {
			then = m.edit(msg)
		}
	}
	m.arrange()
	return m, then
}

func (m *model) press(msg tea.KeyPressMsg) (then tea.Cmd) {
	name := msg.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case name == "ctrl+z":
		return tea.Suspend
	case m.filter.Focused() && name == "enter":
		m.filter.Blur()
		return nil
	case m.filter.Focused() && name != "esc":
		return m.edit(msg)
	}
	switch name {
	case "q", "Q", "ctrl+d":
		return tea.Quit
	case "space", "p":
		m.paused = !m.paused
	case "esc":
		m.back()
	default:
		if m.details != nil {
			m.body, then = m.body.Update(msg)
			return then
		}
	}
	switch name {
	case "/":
		return m.filter.Focus()
	case "a":
		m.all = !m.all
	case "enter":
		if m.cursor < len(m.list.items) {
			m.details = &details{item: m.list.items[m.cursor]}
			m.body.GotoTop()
			return m.explain(m.details.item)
		}
	default:
		m.move(name)
	}
	return nil
}

func (m *model) edit(msg tea.Msg) (then tea.Cmd) {
	m.filter, then = m.filter.Update(msg)
	m.selected = ""
	m.body.GotoTop()
	return then
}

// move moves the cursor.
func (m *model) move(name string) {
	last := len(m.list.items) - 1
	to := m.cursor
	switch name {
	case "up", "k":
		to--
	case "down", "j":
		to++
	case "pgup", "b":
		to -= m.body.Height()
	case "pgdown", "f":
		to += m.body.Height()
	case "g", "home":
		to = 0
	case "G", "end":
		to = last
	default:
		return
	}
	if last >= 0 {
		m.cursor = max(0, min(to, last))
		m.selected = m.list.items[m.cursor].id
	}
}

// place sets the cursor to the selected item. If it has disappeared, the cursor keeps its position.
func (m *model) place() {
	at := slices.IndexFunc(m.list.items, func(i item) bool {
		if m.selected == "" {
			return i.key != nil || i.limit != nil
		}
		return i.id == m.selected
	})
	if at < 0 {
		at = m.cursor
	}
	m.cursor = max(0, min(at, len(m.list.items)-1))
}

// showCursor scrolls the list to the selected item, with its title if both fit.
func (m *model) showCursor() {
	isSelected := func(l line) bool { return l.item == m.cursor }
	first := slices.IndexFunc(m.list.lines, isSelected)
	if first < 0 {
		return // the list is empty
	}
	last := first
	for last+1 < len(m.list.lines) && isSelected(m.list.lines[last+1]) {
		last++
	}
	title := max(0, min(2, m.body.Height()-(last-first+1)))
	m.body.SetYOffset(min(max(m.body.YOffset(), last-m.body.Height()+1), max(0, first-title)))
}

func (m *model) back() {
	switch {
	case m.details != nil:
		m.details = nil
	default:
		m.filter.Reset()
		m.filter.Blur()
		m.selected = ""
	}
	m.body.GotoTop()
}

// arrange updates the lines of the screen after any change.
func (m *model) arrange() {
	m.header = nil
	if m.snapshot != nil {
		m.header = m.view.header(m.snapshot.Sum)
		if m.stale {
			gone, _, _ := strings.Cut(m.err.Error(), "\n")
			m.header = append([]line{m.view.line(red,
				"no answer, the state of "+format.Time(m.snapshot.Sum.Time)+": "+gone)}, m.header...)
		}
		m.header = m.header[:min(len(m.header), m.height/2)]
	}
	height := m.height - 1 - len(m.header)
	switch {
	case m.snapshot != nil && m.details != nil:
		m.list = list{lines: m.view.details(m.details, m.snapshot)}
	case m.snapshot != nil:
		filter := strings.ToLower(m.filter.Value())
		share := height
		if m.all || filter != "" {
			share = 0
		}
		m.list = m.view.layout(m.snapshot.Sum, filter, share)
		m.place()
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
	if m.details == nil {
		m.showCursor()
	}
}

// style returns the style of a line of the body.
func (m *model) style(i int) lipgloss.Style {
	l := m.list.lines[i]
	return styles[l.tone].Reverse(l.item == m.cursor)
}

// View implements [tea.Model].
func (m *model) View() tea.View {
	var b strings.Builder
	for _, l := range m.header {
		b.WriteString(styles[l.tone].Render(l.text) + "\n")
	}
	b.WriteString(m.body.View())
	footer := m.footer()
	b.WriteString("\n" + styles[footer.tone].Render(footer.text))
	v := tea.NewView(b.String())
	v.AltScreen = true
	return v
}

func (m *model) footer() line {
	switch {
	case m.filter.Focused():
		return m.view.line(strong, "/"+m.filter.Value()+"_")
	case m.paused:
		return m.view.line(strong, "paused: p resume, q quit")
	case m.details != nil:
		return m.view.line(faint, detailsKeys)
	case m.filter.Value() != "":
		filter := m.view.truncate(m.view.printable("/"+m.filter.Value()), max(10, m.view.width-len(filterKeys)))
		return m.view.line(faint, filter+filterKeys)
	default:
		return m.view.line(faint, listKeys)
	}
}
