package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
)

// Options say what [Files] read and what they call.
type Options struct {
	// Paths are files and directories; see [Load]. Without any the defaults alone
	// are read, for rules that come from elsewhere. Files of the tables of Options that
	// lie below a directory are not files of rules.
	Paths []string
	// Prefix, if not empty, chooses among the files below directories those whose
	// path there, with dots for slashes, begins with it.
	Prefix string
	// Defaults is a file of defaults; see [rulefile.ParseDefaults]. Empty for none. It
	// may lie below one of Paths. It is not a file of rules then.
	Defaults string
	// Options say how the rules compile.
	Options descriptors.Options
	// AllowEmpty accepts that there is no file, StartEmpty accepts it at the start only.
	// Otherwise it is an error: nothing would be limited, and nothing would tell.
	AllowEmpty, StartEmpty bool
	// OnLoad is called with the first files and after every change of them. It puts
	// the Update in force, or returns why not. Required.
	OnLoad func(Update) error
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

// Files are files of rules, whose changes are followed. One goroutine uses them:
// [Files.Load] first, then [Files.Run], which owns all that it starts.
type Files struct {
	opt    Options
	reload Reload[[sha256.Size]byte]
	// watch is newWatcher, except in tests.
	watch func() (*watcher, error)
}

// NewFiles returns Files. It reads nothing yet.
func NewFiles(opt Options) *Files {
	if opt.Poll <= 0 {
		opt.Poll = 10 * time.Second
	}
	if opt.Settle <= 0 {
		opt.Settle = 100 * time.Millisecond
	}
	s := &Files{opt: opt, watch: newWatcher}
	s.reload.OnLoad = opt.OnLoad
	return s
}

// alone returns a group of these files.
func (s *Files) alone() *Group { return &Group{files: s} }

// Load reads the files for the first time, calls OnLoad and returns the error that
// keeps them out.
func (s *Files) Load() error { return s.take(s.read(), true) }

// Run calls OnLoad after every change of the files since Load or Run last read them, until
// ctx ends. OnLoad gets the new Set, or once the error if the files do not load. When they
// go back to what is in force, OnLoad gets that Set again.
func (s *Files) Run(ctx context.Context) { s.alone().Run(ctx) }

// look reads the files. If they changed, it takes them once two readings, a settle time
// apart, agree.
func (s *Files) look(ctx context.Context, w *watcher, refresh func()) {
	s.alone().look(ctx, w, refresh)
}

// following is how paths are followed.
type following struct {
	poll, settle time.Duration
	onUnwatched  func(error) // or nil
	watch        func() (*watcher, error)
	dirs         func() []string // directories that are to be watched now, sorted
}

// run calls look at once, and whenever something may have changed, until ctx ends. It calls refresh to watch what is there
// now.
func (f *following) run(ctx context.Context, look func(ctx context.Context, w *watcher, refresh func())) {
	w, err := f.watch()
	if err != nil {
		w = &watcher{}
	}
	defer w.close()
	poll := time.NewTicker(f.poll)
	defer poll.Stop()
	unwatched := false
	refresh := func() {
		// Watches come before the files are read: a change is either seen by
		// the reading or by a watch.
		if err := cmp.Or(err, w.refresh(f.dirs)); (err != nil) != unwatched {
			unwatched = err != nil
			if unwatched {
				poll.Reset(min(f.poll, time.Second))
				if f.onUnwatched != nil {
					f.onUnwatched(err)
				}
			} else {
				poll.Reset(f.poll)
			}
		}
	}
	for {
		refresh()
		look(ctx, w, refresh)
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-w.events:
			if !w.quiet(ctx, f.settle) {
				return
			}
		case <-w.errors: //nolint:errcheck // an overflow of events is a hint like them
		}
	}
}

// place returns where the files are.
func (s *Files) place() *place {
	return &place{s.opt.Paths, s.opt.Prefix, s.opt.Defaults, tableFiles(s.opt.Options.Tables)}
}

// reading is what the paths held at one time.
type reading struct {
	sources
	sum [sha256.Size]byte
	err error
}

func (s *Files) read() reading {
	all, err := s.place().read()
	if err != nil {
		return reading{sum: Digest([]byte(err.Error())), err: err}
	}
	return reading{sum: all.sum(), sources: all}
}

// changing returns the reading of files that keep changing.
func (s *Files) changing() reading {
	err := fmt.Errorf("read %s: %w", strings.Join(s.place().all(), ", "), errChanging)
	return reading{sum: Digest([]byte(err.Error())), err: err}
}

// take puts a reading in force, or returns why not.
func (s *Files) take(r reading, start bool) error {
	return s.reload.Take(r.sum, func() Update {
		if r.err != nil {
			return Update{Err: r.err}
		}
		if len(s.opt.Paths) > 0 && !s.opt.AllowEmpty && (!start || !s.opt.StartEmpty) {
			if err := r.someFile(s.opt.Paths, s.opt.Prefix); err != nil {
				return Update{Err: err}
			}
		}
		var u Update
		if len(s.opt.Paths) == 0 {
			u.Defaults, u.Diagnostics = rulefile.ParseDefaults(r.defaults.Name, r.defaults.Content)
		} else {
			u.Set, u.Diagnostics = r.build(s.opt.Options, nil)
		}
		u.Err = u.Diagnostics.Err()
		return u
	})
}
