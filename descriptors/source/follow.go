package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Options say what [Files] read and whom they tell.
type Options struct {
	// Paths are files and directories; see [Read]. Without any the defaults alone
	// are read, for rules that come from elsewhere.
	Paths []string
	// Prefix, if not empty, chooses among the files below directories those whose
	// path there, with dots for slashes, begins with it.
	Prefix string
	// Defaults is a file of defaults; see
	// [rulefile.ParseDefaults]. Empty for none. It may
	// lie below one of Paths, and is no file of rules there.
	Defaults string
	// Options say how the rules compile.
	Options descriptors.Options
	// AllowEmpty accepts, at a reload too, that there is no file.
	AllowEmpty bool
	// OnLoad is called by [Files.Run] for every change of the files. Required.
	OnLoad func(Update)
	// OnUnwatched is called by [Files.Run] when the files can no longer be
	// watched, so that they are only polled. Optional.
	OnUnwatched func(error)
	// Poll is how often the files are read without a hint that they changed.
	// Default 10s; each second while they cannot be watched.
	Poll time.Duration
	// Settle is how long the files must stay as they are before a change is
	// taken, so that no half-written file is. Default 100ms.
	Settle time.Duration
}

// Update is the outcome of reading the files: either Set or Err is not nil. For a
// Source without Paths it is Defaults instead of Set.
type Update struct {
	Set      *descriptors.Set
	Defaults *rules.Defaults
	// Diagnostics are those of the rules: warnings beside a Set, or what Err says.
	Diagnostics rules.Diagnostics
	// Err says why the files do not load; what was in force stays so.
	Err error
}

// Files are files of rules, whose changes are followed. One goroutine uses them:
// [Files.Load] first, then [Files.Run], which owns all that it starts.
type Files struct {
	opt Options
	// inForce is the last good outcome, reported the last one of either kind.
	inForce, reported outcome
	// watch is newWatcher but in tests.
	watch func() (*watcher, error)
}

// outcome is an Update with what it was made of.
type outcome struct {
	sum    [sha256.Size]byte
	update Update
}

// good reports whether there is something in o that can be in force.
func (o *outcome) good() bool { return o.update.Set != nil || o.update.Defaults != nil }

// NewFiles returns Files. It reads nothing yet.
func NewFiles(opt Options) *Files {
	if opt.Poll <= 0 {
		opt.Poll = 10 * time.Second
	}
	if opt.Settle <= 0 {
		opt.Settle = 100 * time.Millisecond
	}
	return &Files{opt: opt, watch: newWatcher}
}

// Load reads the files for the first time. A directory without files is an empty
// set of rules then.
func (s *Files) Load() Update {
	return s.take(s.read(), true)
}

// Run calls OnLoad whenever the files become other than they were when Load or
// Run last looked, until ctx ends: with a new Set, or once with the error if they
// do not load. When they go back to what is in force, OnLoad gets that Set again.
//
// Notifications of the file system are hints to look sooner; the contents decide.
func (s *Files) Run(ctx context.Context) {
	w, err := s.watch()
	if err != nil {
		w = &watcher{}
	}
	defer w.close()
	poll := time.NewTicker(s.opt.Poll)
	defer poll.Stop()
	unwatched := false
	refresh := func() {
		// Watches come before the files are read: a change is either seen by
		// the reading or by a watch.
		if err := cmp.Or(err, w.refresh(s.watched())); (err != nil) != unwatched {
			unwatched = err != nil
			if unwatched {
				poll.Reset(min(s.opt.Poll, time.Second))
				if s.opt.OnUnwatched != nil {
					s.opt.OnUnwatched(err)
				}
			} else {
				poll.Reset(s.opt.Poll)
			}
		}
	}
	for {
		refresh()
		s.look(ctx, w, refresh)
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-w.events():
			if !w.quiet(ctx, s.opt.Settle) {
				return
			}
		case <-w.errors(): //nolint:errcheck // an overflow of events is a hint like them
		}
	}
}

// look reads the files and, if they changed, takes them once two readings a
// settle time apart agree.
func (s *Files) look(ctx context.Context, w *watcher, refresh func()) {
	for last := s.read(); last.sum != s.reported.sum; {
		if !w.quiet(ctx, s.opt.Settle) {
			return
		}
		refresh()
		next := s.read()
		if next.sum == last.sum {
			s.opt.OnLoad(s.take(next, false))
			return
		}
		last = next
	}
}

// watched returns all paths that are read.
func (s *Files) watched() []string {
	if s.opt.Defaults == "" {
		return s.opt.Paths
	}
	return append(slices.Clip(s.opt.Paths), s.opt.Defaults)
}

// reading is what the paths held at one time.
type reading struct {
	sources
	sum [sha256.Size]byte
	err error
}

func (s *Files) read() reading {
	all, err := readAll(s.opt.Paths, s.opt.Prefix, s.opt.Defaults)
	if err != nil {
		return reading{sum: sha256.Sum256([]byte("error: " + err.Error())), err: err}
	}
	return reading{sum: all.sum(), sources: all}
}

// take turns a reading into the outcome that Run compares the next ones with.
func (s *Files) take(r reading, start bool) Update {
	if s.inForce.good() && r.sum == s.inForce.sum {
		s.reported = s.inForce
		return s.inForce.update
	}
	o := outcome{sum: r.sum}
	switch {
	case r.err != nil:
		o.update.Err = r.err
	case len(s.opt.Paths) == 0:
		o.update.Defaults, o.update.Diagnostics = rulefile.ParseDefaults(r.defaults.Name, r.defaults.Content)
		o.update.Err = o.update.Diagnostics.Err()
	case len(r.files) == 0 && !start && !s.opt.AllowEmpty:
		o.update.Err = fmt.Errorf("no file of rules in %s", strings.Join(s.opt.Paths, ", "))
	default:
		o.update.Set, o.update.Diagnostics = r.build(s.opt.Options)
		o.update.Err = o.update.Diagnostics.Err()
	}
	s.reported = o
	if o.good() {
		s.inForce = o
	}
	return o.update
}
