package source

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watcher reports events in the directories of the files. The zero value reports none, so that the
// files are only polled.
//
// It watches directories, not files: the watch of a file ends when a writer replaces it.
type watcher struct {
	notify *fsnotify.Watcher
	events <-chan fsnotify.Event
	errors <-chan error
}

func newWatcher() (*watcher, error) {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &watcher{n, n.Events, n.Errors}, nil
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close() // there is no remedy
	}
}

// waitQuiet waits until there has been no event for the settle time. It waits at most ten times as
// long, so that a busy file in the same directory does not hide a change. It returns false if ctx
// ended.
func (w *watcher) waitQuiet(ctx context.Context, settle time.Duration) bool {
	limit := time.NewTimer(10 * settle)
	defer limit.Stop()
	for {
		calm := time.NewTimer(settle)
		select {
		case <-ctx.Done():
			calm.Stop()
			return false
		case <-calm.C:
			return true
		case <-limit.C:
			calm.Stop()
			return true
		case <-w.events:
		case <-w.errors: //nolint:errcheck // a lost event counts as one
		}
		calm.Stop()
	}
}

// refresh watches exactly the given directories. It returns an error if one of them cannot be
// watched.
func (w *watcher) refresh(dirs func() []string) error {
	if w.notify == nil {
		return nil
	}
	wanted := dirs()
	for _, dir := range w.notify.WatchList() {
		if !slices.Contains(wanted, dir) {
			_ = w.notify.Remove(dir) // it may be gone already
		}
	}
	var failed error
	for _, dir := range wanted {
		// Add it each time, since the name may lead to a new directory.
		if err := w.notify.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
	}
	return failed
}

// fileDirs returns the directories in which a change can affect which file a path leads to, sorted.
// A directory that the path itself leads to, which may be large, is not included.
func fileDirs(path string) []string {
	dirs := append(linkDirs(path), filepath.Dir(absolute(path)))
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// watchedDirs returns the directories in which a change can affect the content of paths, sorted.
func watchedDirs(paths []string) []string {
	set := map[string]bool{}
	add := func(path string) {
		for _, dir := range linkDirs(path) {
			set[dir] = true
		}
	}
	for _, path := range paths {
		add(path)
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			continue
		}
		// An error ends the walk early. The directories up to there are watched.
		_ = walk(path, nil, func(f foundFile) { add(f.name) }, func(dir string) {
			if target, err := filepath.EvalSymlinks(dir); err == nil {
				set[absolute(target)] = true
			}
		})
	}
	return slices.Sorted(maps.Keys(set))
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// linkDirs resolves path step by step. It returns every directory with a link on the way, and then
// the directory of the target, or the last directory that exists if there is no target.
func linkDirs(path string) []string {
	const maxLinks = 255 // ends loops, like the kernel's limit
	var dirs []string
	dir := "/"
	rest := strings.Split(absolute(path), "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			dir = filepath.Dir(dir)
			continue
		}
		here := filepath.Join(dir, name)
		info, err := os.Lstat(here)
		switch {
		case err != nil:
			return append(dirs, dir)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(here)
			if links++; err != nil || links > maxLinks {
				return append(dirs, dir)
			}
			dirs = append(dirs, dir)
			if filepath.IsAbs(target) {
				dir = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
		case len(rest) == 0 && !info.IsDir():
			dirs = append(dirs, dir)
		default:
			dir = here
		}
	}
	return dirs
}
