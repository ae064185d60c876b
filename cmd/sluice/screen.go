package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/server/live"
)

// screen is the terminal of a command.
type screen struct {
	in  *os.File // nil if standard input is not a terminal
	out *os.File
}

// openScreen returns the terminal of a console, or nil if its output is not a terminal.
func openScreen(c console) *screen {
	printed := c.out
	if o, ok := printed.(*output); ok {
		printed = o.to
	}
	out, ok := printed.(*os.File)
	if !ok || !isTerminal(out) {
		return nil
	}
	s := &screen{out: out}
	if in, ok := c.in.(*os.File); ok && isTerminal(in) {
		s.in = in
	}
	return s
}

// Control sequences. enterScreen switches to the alternate screen, hides the cursor and disables
// line wrapping.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	restOfLine  = "\x1b[K"
	restOfAll   = "\x1b[J"
)

// run shows the state and refreshes it until ctx ends or the user presses q. It restores the
// terminal.
func (s *screen) run(ctx context.Context, t *topCmd) error {
	restore, err := s.setCbreakMode()
	if err != nil {
		return fmt.Errorf("set the mode of the terminal: %w", err)
	}
	defer restore()
	fmt.Fprint(s.out, enterScreen)
	defer fmt.Fprint(s.out, leaveScreen)
	keys := make(chan byte)
	if s.in != nil {
		go func() { // ends with the process
			in := bufio.NewReader(s.in)
			for {
				key, err := in.ReadByte()
				if err != nil {
					return
				}
				keys <- key
			}
		}()
	}
	type result struct {
		state *live.State
		err   error
	}
	results := make(chan result, 1)
	fetch := func() {
		state, err := t.fetchState(ctx)
		results <- result{state, err}
	}
	go fetch()
	refresh := time.NewTimer(t.Interval)
	defer refresh.Stop()
	var last result
	paused, fetching, fetched := false, true, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case key := <-keys:
			switch key {
			case 'q', 'Q', 3, 4: // and Ctrl-C, Ctrl-D
				return nil
			case ' ', 'p':
				paused = !paused
			}
		case last = <-results:
			fetching, fetched = false, true
			refresh.Reset(t.Interval)
		case <-refresh.C:
			if !paused && !fetching {
				fetching = true
				go fetch()
			} else {
				refresh.Reset(t.Interval)
			}
			continue
		}
		if fetched {
			s.draw(last.state, last.err, paused)
		}
	}
}

// draw draws a state, or err if state is nil.
func (s *screen) draw(state *live.State, err error, paused bool) {
	width, height := s.size()
	v := view{width: width, utf8: supportsUTF8(os.Getenv), colour: os.Getenv("NO_COLOR") == ""}
	var lines []string
	if state == nil {
		for line := range strings.Lines(err.Error()) {
			lines = append(lines, v.wrap(red, strings.TrimSpace(line), 3)...)
		}
	} else {
		lines = v.render(state, height-1)
	}
	lines = lines[:min(len(lines), height-1)]
	var b strings.Builder
	b.WriteString(home)
	for _, line := range lines {
		// Erase before writing: after a line of full width, it would erase the last column.
		b.WriteString(restOfLine + line + "\r\n")
	}
	b.WriteString(restOfAll)
	for range height - 1 - len(lines) {
		b.WriteString("\r\n")
	}
	footer := "q quit, space pause"
	if paused {
		footer = "paused: q quit, space resume"
	}
	b.WriteString(v.paint(faint, footer))
	_, _ = s.out.WriteString(b.String()) // if the terminal is gone, a signal ends the process
}
