package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Options configure [Files].
type Options struct {
	// Paths are files and directories; see [Load]. If empty, only the defaults are read, for rules
	// of another source. Files of tables below a directory are not files of rules.
	Paths []string
	// Prefix, if not empty, selects the files below directories whose relative path, with dots for
	// slashes, begins with it.
	Prefix string
	// Defaults is a file of defaults, or empty; see [rulefile.ParseDefaults]. It may be below one
	// of Paths, where it is not a file of rules.
	Defaults string
	// Options are those of the compiler.
	Options descriptors.Options
	// AllowEmpty permits Paths without a file, and StartEmpty permits them at the start only.
	// Otherwise they are an error, since nothing would be limited.
	AllowEmpty, StartEmpty bool
	// OnLoad is called with the first files and after every change. It activates the Update, or
	// returns why not. Required.
	OnLoad func(Update) error
	// Settle is how long files must not change before a change is applied, so that a half-written
	// file is not. Default 100ms.
	Settle time.Duration
}

// Files follows files of rules. It is not safe for concurrent use: call [Files.Load] first, then
// [Files.Run].
type Files struct {
	opt    Options
	reload Reload[[sha256.Size]byte]
	// listNames are the names of all files read so far. lists are the paths of the last reading.
	listNames listNames
	lists     []string
}

// NewFiles returns Files. It reads nothing yet.
func NewFiles(opt Options) *Files {
	opt.Settle = cmp.Or(opt.Settle, defaultSettle)
	s := &Files{opt: opt, listNames: listNames{}}
	s.reload.OnLoad = opt.OnLoad
	return s
}

// asGroup returns a group of these files only.
func (s *Files) asGroup() *Group { return &Group{files: s} }

// Load reads the files for the first time, calls OnLoad and returns the error.
func (s *Files) Load() error { return s.apply(s.read(), true) }

// Run calls OnLoad after every change of the files since they were last read, until ctx ends. If
// the files do not load, OnLoad gets the error once. If they return to the active rules, OnLoad
// gets that Set again.
func (s *Files) Run(ctx context.Context) { s.asGroup().Run(ctx) }

// Files are looked at every lookInterval, and read if they look different. Some file systems change
// a file without another size or time, so they are read every readInterval in any case.
const (
	lookInterval = 400 * time.Millisecond
	readInterval = 10 * time.Second
)

const defaultSettle = 100 * time.Millisecond

// wait waits for the given time. It returns false if ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (s *Files) locations() *locations {
	return &locations{s.opt.Paths, s.opt.Prefix, s.opt.Defaults, tableFiles(s.opt.Options.Tables), s.listNames}
}

// reading is the content of the paths at one time.
type reading struct {
	sources
	sum [sha256.Size]byte
	err error
}

func (s *Files) read() reading {
	all, err := s.locations().read()
	if err != nil {
		return reading{sum: Digest([]byte(err.Error())), err: err}
	}
	s.lists = nil
	for i := range all.lists {
		s.lists = append(s.lists, all.lists[i].Name)
	}
	return reading{sum: all.sum(), sources: all}
}

// changingReading returns the error for files that keep changing.
func (s *Files) changingReading() reading {
	err := fmt.Errorf("read %s: %w", strings.Join(s.locations().allPaths(), ", "), errChanging)
	return reading{sum: Digest([]byte(err.Error())), err: err}
}

// apply activates a reading, or returns why not.
func (s *Files) apply(r reading, start bool) error {
	return s.reload.Apply(r.sum, func() Update {
		if r.err != nil {
			return Update{Err: r.err}
		}
		if len(s.opt.Paths) > 0 && !s.opt.AllowEmpty && (!start || !s.opt.StartEmpty) {
			if err := r.requireFiles(s.opt.Paths, s.opt.Prefix); err != nil {
				return Update{Err: err}
			}
		}
		var u Update
		if len(s.opt.Paths) == 0 {
			u.Defaults, u.Diagnostics = r.parseDefaults(map[string][]rules.Range{})
		} else {
			u.Set, u.Diagnostics = r.build(s.opt.Options, nil)
		}
		u.Err = u.Diagnostics.Err()
		return u
	})
}
