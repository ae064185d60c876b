package source

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Change is rules and rows of tables that have changed since the last Change. If a volume such as a mounted ConfigMap has
// replaced all of its files at once, all of them are in one Change.
type Change struct {
	// Rules are nil if they have not changed.
	Rules  *Update
	Tables []TableUpdate
}

// Group follows files of rules and of tables together. One goroutine uses it, as it uses [Files].
type Group struct {
	files  *Files // nil for none
	tables []*TableFile
	// onLoad is called with the first reading of all files, and after changes. Nil for [Files] alone, whose own OnLoad is called.
	onLoad func(Change) error
	// read are the tables of the Change that is being loaded.
	read []TableUpdate
	// onWait is OnWait's; nil for none.
	onWait func(Wait)
}

// Wait is what the first reading waits for.
type Wait struct {
	// Rules is true if files of rules change. Tables are the names of the tables whose files change or are unfinished, and Bytes
	// the size of each of these files.
	Rules  bool
	Tables []string
	Bytes  []int64
	// Waited is how long the reading has waited so far, and Most the longest that it may wait.
	Waited, Most time.Duration
}

// waitInterval is how often a wait is reported.
const waitInterval = time.Second

// OnWait has a function called as soon as [Group.Load] waits for files, and then once a second while it waits.
func (g *Group) OnWait(report func(Wait)) { g.onWait = report }

// reportWait reports that Load waits for the members that are not among the ready ones.
func (g *Group) reportWait(ready changes, waited time.Duration) {
	w := Wait{Rules: g.files != nil && !ready.rules, Waited: waited, Most: startTime}
	for i, f := range g.tables {
		if ready.tables[i] {
			continue
		}
		size := int64(0)
		if f.seen.info != nil {
			size = f.seen.info.Size()
		}
		w.Tables, w.Bytes = append(w.Tables, f.opt.Table.Name()), append(w.Bytes, size)
	}
	g.onWait(w)
}

// NewGroup returns a group. It reads nothing yet. OnLoad is called in place of the OnLoad of files, which may be nil. It
// activates a Change, or returns why not.
func NewGroup(files *Files, tables []*TableFile, onLoad func(Change) error) *Group {
	g := &Group{files: files, tables: tables, onLoad: onLoad}
	if files != nil {
		files.reload.OnLoad = func(u Update) error { return g.onLoad(Change{Rules: &u, Tables: g.read}) }
	}
	return g
}

// glance is the state of all files of a group at one time.
type glance struct {
	rules  reading // without a sum if the group has no rules
	stamps []stamp
}

func (g *Group) glance() (now glance) {
	if g.files != nil {
		now.rules = g.files.read()
	}
	for _, f := range g.tables {
		f.observe()
		now.stamps = append(now.stamps, f.seen)
	}
	return now
}

// changes says which members of a group have changed.
type changes struct {
	rules  bool
	tables []bool
}

func (c changes) any() bool { return c.rules || slices.Contains(c.tables, true) }

// changed returns the members that are not as they were read last.
func (g *Group) changed(now *glance) changes {
	c := changes{rules: g.files != nil && g.files.reload.News(now.rules.sum)}
	for i, f := range g.tables {
		c.tables = append(c.tables, !now.stamps[i].is(f.last))
	}
	return c
}

// settled returns which of the changed members two glances saw in the same state, and whether that is all of them.
func (c changes) settled(a, b *glance) (settled changes, all bool) {
	settled = changes{c.rules && a.rules.sum == b.rules.sum, slices.Clone(c.tables)}
	for i := range c.tables {
		settled.tables[i] = c.tables[i] && a.stamps[i].is(b.stamps[i])
	}
	return settled, settled.rules == c.rules && slices.Equal(settled.tables, c.tables)
}

// Load reads all files for the first time, calls OnLoad and returns its error. It waits for files that change or are unfinished,
// for startTime at most. It calls nothing if ctx ends first.
func (g *Group) Load(ctx context.Context) error {
	all := changes{rules: g.files != nil}
	for range g.tables {
		all.tables = append(all.tables, true)
	}
	if all.rules && len(all.tables) == 0 { // no other file has to be of the same time
		now := g.glance()
		return g.take(&now, all, nil, true)
	}
	nextReport := time.Duration(0)
	for waited := stopwatch(); ; {
		now := g.glance()
		ready := changes{tables: slices.Clone(all.tables)}
		read, same := g.readTables(&now, ready)
		after := g.glance()
		settled, every := all.settled(&now, &after)
		if same && every {
			return g.take(&now, all, read, true)
		}
		if soFar := waited(); soFar < startTime {
			if g.onWait != nil && soFar >= nextReport {
				for i := range ready.tables {
					ready.tables[i] = ready.tables[i] && settled.tables[i]
				}
				ready.rules = settled.rules
				g.reportWait(ready, soFar)
				nextReport = soFar + waitInterval
			}
			if !(&watcher{}).quiet(ctx, g.following().settle) {
				return ctx.Err()
			}
			continue
		}
		if all.rules && !settled.rules {
			now.rules = g.files.changing()
		}
		read = nil
		for i, f := range g.tables {
			r := f.changing()
			if settled.tables[i] {
				r = f.read()
			}
			read = append(read, fileReading{f, r})
		}
		return g.take(&now, all, read, true)
	}
}

// Run calls OnLoad after every change of the files since they were read last, until ctx ends.
func (g *Group) Run(ctx context.Context) {
	f := g.following()
	f.run(ctx, g.look)
}

// following returns how the files are followed.
func (g *Group) following() following {
	if g.files != nil {
		o := &g.files.opt
		return following{o.Poll, o.Settle, o.OnUnwatched, g.files.watch, g.dirs}
	}
	o := &g.tables[0].opt
	return following{o.Poll, o.Settle, o.OnUnwatched, newWatcher, g.dirs}
}

// look takes the members that have changed once two glances, a settle time apart, agree on them: between the two glances all
// of them were in this state at one time. Members that go on changing hold back the others until mostRounds glances have seen
// them change; an unfinished table that stays as it is holds them back until it is read.
func (g *Group) look(ctx context.Context, w *watcher, refresh func()) {
	before, unsettled, waited := g.glance(), 0, stopwatch()
	for g.changed(&before).any() {
		if !w.quiet(ctx, g.following().settle) {
			return
		}
		refresh()
		now := g.glance()
		settled, all := g.changed(&now).settled(&before, &now)
		if !all {
			unsettled++
		}
		if settled.any() && (all || unsettled >= mostRounds) {
			if tables, same := g.readTables(&now, settled); same {
				_ = g.take(&now, settled, tables, false) // OnLoad reports the error
				if all {
					return
				}
				unsettled = 0
			} else {
				all = false
			}
		}
		if !all && waited() >= changingTime {
			g.reject(&now, settled)
			return
		}
		before = now
	}
}

// reject has tables that have changed and are not settled be errors.
func (g *Group) reject(now *glance, settled changes) {
	var read []fileReading
	for i, is := range g.changed(now).tables {
		if is && !settled.tables[i] {
			read = append(read, fileReading{g.tables[i], g.tables[i].changing()})
		}
	}
	_ = g.take(now, changes{}, read, false) // OnLoad reports the error
}

// mostRounds is the number of glances that may find members still changing before the other members are taken without them.
const mostRounds = 10

// fileReading is a reading of the file of a table.
type fileReading struct {
	file *TableFile
	tableReading
}

// readTables reads the given tables. It reports whether their files were still in the state of now, and can be taken, and removes
// those that cannot from which. It reads none if some are known to be unfinished: the others may be large.
func (g *Group) readTables(now *glance, which changes) (all []fileReading, same bool) {
	same = true
	for i, f := range g.tables {
		if which.tables[i] && f.isUnfinished() {
			which.tables[i], same = false, false
		}
	}
	for i, f := range g.tables {
		if same && which.tables[i] {
			r := f.read()
			all = append(all, fileReading{f, r})
			unreadable := r.err != nil && r.stamp.info == nil
			if errors.Is(r.err, errChanged) || errors.Is(r.err, errUnfinished) || !unreadable && !r.stamp.is(now.stamps[i]) {
				which.tables[i], same = false, false
			}
		}
	}
	return all, same
}

// take loads what was read, or returns why it is not loaded. Start says that it is the first reading.
func (g *Group) take(now *glance, which changes, read []fileReading, start bool) error {
	defer func() { g.read = nil }()
	for _, r := range read {
		if start || !r.stamp.is(r.file.last) { // else it still cannot be read, for the same reason
			g.read = append(g.read, r.file.update(r.tableReading))
		}
	}
	switch {
	case which.rules:
		return g.files.take(now.rules, start) // calls OnLoad
	case len(g.read) == 0:
		return nil
	default:
		return g.onLoad(Change{Tables: g.read})
	}
}

// dirs returns the directories that are to be watched, sorted.
func (g *Group) dirs() (all []string) {
	if g.files != nil {
		all = watchedDirs(g.files.place().all())
	}
	for _, f := range g.tables {
		all = append(all, fileDirs(f.opt.Path)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
