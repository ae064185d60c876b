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

// A screen is the terminal of a command.
type screen struct{ in, out *os.File }

// openScreen returns the terminal that a console prints to, nil if it prints elsewhere.
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

// What moves a terminal to a screen of its own without a cursor, where lines that are too wide end at the edge, and back; and
// what begins and ends a picture.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	restOfLine  = "\x1b[K"
	restOfAll   = "\x1b[J"
)

// run shows the state again and again, until ctx ends or somebody types q. It leaves the terminal as it found it.
func (s *screen) run(ctx context.Context, t *topCmd) error {
	restore, err := s.setCbreakMode()
	if err != nil {
		return fmt.Errorf("read keys of the terminal: %w", err)
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
	type look struct {
		state *live.State
		err   error
	}
	looks := make(chan look, 1)
	ask := func() {
		state, err := t.fetchState(ctx)
		looks <- look{state, err}
	}
	go ask()
	again := time.NewTimer(t.Interval)
	defer again.Stop()
	var last look
	paused, asking, asked := false, true, false
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
		case last = <-looks:
			asking, asked = false, true
			again.Reset(t.Interval)
		case <-again.C:
			if !paused && !asking {
				asking = true
				go ask()
			} else {
				again.Reset(t.Interval)
			}
			continue
		}
		if asked {
			s.draw(last.state, last.err, paused)
		}
	}
}

// draw draws a state, or why there is none.
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
		b.WriteString(restOfLine + line + "\r\n") // behind a line that fills its columns it would take the last one away
	}
	b.WriteString(restOfAll)
	for range height - 1 - len(lines) {
		b.WriteString("\r\n")
	}
	foot := "q quits, space stops the picture"
	if paused {
		foot = "stopped: space goes on, q quits"
	}
	b.WriteString(v.paint(faint, foot))
	_, _ = s.out.WriteString(b.String()) // a terminal that went away ends the process by a signal
}
