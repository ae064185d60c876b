package top

import (
	"context"
	"io"
	"os"
	"runtime"
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
	listKeys    = "enter details  / filter  s sort  a all  r reset  u unmask  ? help  q quit"
	filterKeys  = "  esc end filter  enter details  r reset  ? help  q quit"
	detailsKeys = "esc back  r reset  u unmask  p pause  ? help  q quit"
	helpText    = `
enter         details: position of the rule, last five minutes, counter
esc           back, or end the filter
/             show only domains, keys and limits that contain a text
s             sort keys and limits by denials, hits or name
a             show all rows, or those that fit
r             reset a key, or the denied keys of a limit; asks first
u             show the values of denied keys for 10 minutes; asks first
up, down      select a row; also k, j, pgup, pgdown, g, G
p, space      pause or resume
q             quit

Rates are averages of the last five to ten seconds.
Rates of keys count denied descriptors.
Rates of limits count requests, unless the limit names another unit.
SHARE is the part of all denials of the key's domain.
Times are in the time zone of the status line.`
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
	m := newModel(ctx, s, interval, supportsUTF8(os.Getenv))
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

	order  order
	all    bool // show all items of each section
	filter textinput.Model
	// selected is the selected item, empty for the most denied key, and cursor its index.
	selected item
	cursor   int
	// The body shows help, details, or the list.
	helping bool
	details *details
	// explaining is the id of the key about whose counter the replicas are asked, or empty.
	explaining string
	list       list // its lines are those of the body
	body       viewport.Model
	notice     *notice
	// input is the number of inputs of the user.
	input int

	header, footer []line
}

// fetched is the message with the result of [Service.Fetch].
type fetched struct {
	snapshot *Snapshot
	err      error
}

// tick is the message that starts the next query.
type tick struct{}

func newModel(ctx context.Context, s *Service, interval time.Duration, utf8 bool) *model {
	m := &model{
		ctx: ctx, service: s, interval: interval, view: view{width: 80, utf8: utf8}, height: 24, body: viewport.New(), filter: textinput.New(),
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
			if found, ok := m.findInSnapshot(d.item); ok {
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
	case question:
		if msg.input == m.input {
			m.notice = &msg.notice
		}
	case notice:
		m.notice = &msg
	case tea.KeyPressMsg:
		m.input++
		then = m.press(msg)
	case tea.PasteMsg:
		m.input++
		m.notice = nil
		if m.filter.Focused() {
			then = m.edit(msg)
		}
	}
	m.arrange()
	return m, then
}

// findInSnapshot returns the given item of an earlier snapshot. The sum has only one of the hashes
// that replicas have for a key.
func (m *model) findInSnapshot(earlier item) (found item, ok bool) {
	if found, ok = m.view.find(m.snapshot.Sum, earlier); ok || earlier.key == nil {
		return found, ok
	}
	for _, r := range m.snapshot.Replicas {
		if own, has := m.view.find(r.State, earlier); has {
			return m.view.find(m.snapshot.Sum, own)
		}
	}
	return item{}, false
}

func (m *model) press(msg tea.KeyPressMsg) (then tea.Cmd) {
	name := msg.String()
	asked := m.notice
	m.notice = nil
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case name == "ctrl+z":
		return tea.Suspend
	case asked != nil && asked.confirm != nil:
		if name == "y" {
			m.notice = &notice{text: waiting}
			return asked.confirm
		}
		return nil
	case m.filter.Focused() && name == "enter":
		m.filter.Blur()
		return nil
	case m.filter.Focused() && name != "esc":
		return m.edit(msg)
	}
	i, ok := m.current()
	switch name {
	case "q", "Q", "ctrl+d":
		return tea.Quit
	case "space", "p":
		m.paused = !m.paused
	case "?", "h":
		m.helping = !m.helping
		m.body.GotoTop()
	case "esc":
		m.back()
	case "r":
		if ok {
			return m.previewReset(i)
		}
	case "u":
		m.notice = m.askUnmask()
	default:
		if m.helping || m.details != nil {
			m.body, then = m.body.Update(msg)
			return then
		}
	}
	switch name {
	case "/":
		return m.filter.Focus()
	case "s":
		m.order = (m.order + 1) % orders
	case "a":
		m.all = !m.all
	case "enter":
		if ok && m.details == nil {
			m.details = &details{item: i}
			m.body.GotoTop()
			return m.explain(i)
		}
	default:
		m.move(name)
	}
	return nil
}

func (m *model) edit(msg tea.Msg) (then tea.Cmd) {
	m.filter, then = m.filter.Update(msg)
	m.selected = item{}
	m.body.GotoTop()
	return then
}

func (m *model) back() {
	switch {
	case m.helping:
		m.helping = false
	case m.details != nil:
		m.details = nil
	default:
		m.filter.Reset()
		m.filter.Blur()
		m.selected = item{}
	}
	m.body.GotoTop()
}

// arrange updates the lines of the screen after any change.
func (m *model) arrange() {
	m.footer = m.footerLines()
	m.footer = m.footer[:min(len(m.footer), m.height/3)]
	m.header = nil
	if m.snapshot != nil && !m.helping {
		m.header = m.view.header(m.snapshot.Sum)
		if m.stale {
			gone, _, _ := strings.Cut(m.err.Error(), "\n")
			m.header = append([]line{m.view.line(red,
				"no answer, the state of "+format.Time(m.snapshot.Sum.Time)+": "+gone)}, m.header...)
		}
		m.header = m.header[:min(len(m.header), m.height/2)]
	}
	height := m.height - len(m.footer) - len(m.header)
	switch {
	case m.helping:
		m.list = list{}
		for text := range strings.Lines(helpText) {
			m.list.lines = append(m.list.lines, m.view.wrap(plain, "", strings.TrimSpace(text), 3)...)
		}
	case m.snapshot != nil && m.details != nil:
		m.list = list{lines: m.view.details(m.details, m.snapshot)}
	case m.snapshot != nil:
		filter := strings.ToLower(m.filter.Value())
		share := height
		if m.all || filter != "" {
			share = 0
		}
		m.list = m.view.layout(m.snapshot.Sum, m.order, filter, share)
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
	if !m.helping && m.details == nil {
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
	for _, l := range m.footer {
		b.WriteString("\n" + styles[l.tone].Render(l.text))
	}
	v := tea.NewView(b.String())
	v.AltScreen = true
	return v
}

func (m *model) footerLines() []line {
	switch {
	case m.notice != nil && m.notice.failed:
		return m.view.wrap(red, "", m.notice.text, 4)
	case m.notice != nil:
		return m.view.wrap(strong, "", m.notice.text, 4)
	case m.filter.Focused():
		return []line{m.view.line(strong, "/"+m.filter.Value()+"_")}
	case m.paused:
		return []line{m.view.line(strong, "paused: p resume, q quit")}
	case m.helping || m.details != nil:
		return []line{m.view.line(faint, detailsKeys)}
	case m.filter.Value() != "":
		filter := m.view.truncate(m.view.printable("/"+m.filter.Value()), max(10, m.view.width-len(filterKeys)))
		return []line{m.view.line(faint, filter+filterKeys)}
	default:
		return []line{m.view.line(faint, listKeys)}
	}
}
