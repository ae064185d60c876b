package source

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Change has the rules and tables that changed since the last Change. If a volume such as a mounted
// ConfigMap replaced all of its files at once, all of them are in one Change.
type Change struct {
	// Rules are nil if they have not changed.
	Rules  *Update
	Tables []TableUpdate
}

// Group follows files of rules and of tables together. It is not safe for concurrent use.
type Group struct {
	files  *Files // nil for none
	tables []*TableFile
	// onLoad is called with the first reading of all files, and after changes. If it is nil, the
	// OnLoad of the files is called.
	onLoad func(Change) error
	// read has the tables of the Change that is being loaded.
	read []TableUpdate
	// onWait is set by OnWait, or nil.
	onWait func(Wait)
	// betweenSnapshots is called between two snapshots. Nil, except in tests.
	betweenSnapshots func()
}

// Wait describes the files that the first reading waits for.
type Wait struct {
	// Rules is true if files of rules are changing. Tables are the names of the tables whose files
	// are changing or unfinished, and Bytes the sizes of these files.
	Rules  bool
	Tables []string
	Bytes  []int64
	// Waited is how long Load has waited, and Limit how long it waits at most.
	Waited, Limit time.Duration
}

// waitInterval is how often a wait is reported.
const waitInterval = time.Second

// OnWait sets a function that is called as soon as [Group.Load] waits for files, and then once a
// second.
func (g *Group) OnWait(report func(Wait)) { g.onWait = report }

// reportWait reports that Load waits for the members that are not ready.
func (g *Group) reportWait(ready changes, waited time.Duration) {
	w := Wait{Rules: g.files != nil && !ready.rules, Waited: waited, Limit: startTime}
	for i, f := range g.tables {
		if ready.tables[i] {
			continue
		}
		size := int64(0)
		if f.seen.info != nil {
			size = f.seen.info.Size()
		}
		w.Tables = append(w.Tables, f.opt.Table.Name())
		w.Bytes = append(w.Bytes, size)
	}
	g.onWait(w)
}

// NewGroup returns a group. It reads nothing yet. onLoad activates a Change or returns why not; it
// replaces the OnLoad of files, which may be nil.
func NewGroup(files *Files, tables []*TableFile, onLoad func(Change) error) *Group {
	g := &Group{files: files, tables: tables, onLoad: onLoad}
	if files != nil {
		files.reload.OnLoad = func(u Update) error { return g.onLoad(Change{Rules: &u, Tables: g.read}) }
	}
	return g
}

// snapshot is the state of all files of a group at one time.
type snapshot struct {
	rules  reading // without a sum if the group has no rules
	stamps []stamp
}

func (g *Group) snapshot() (now snapshot) {
	if g.files != nil {
		now.rules = g.files.read()
	}
	for _, f := range g.tables {
		f.observe()
		now.stamps = append(now.stamps, f.seen)
	}
	return now
}

// changes are the members of a group that changed.
type changes struct {
	rules  bool
	tables []bool
}

func (c changes) hasAny() bool { return c.rules || slices.Contains(c.tables, true) }

// changed returns the members that differ from their last reading.
func (g *Group) changed(now *snapshot) changes {
	c := changes{rules: g.files != nil && g.files.reload.IsNew(now.rules.sum)}
	for i, f := range g.tables {
		c.tables = append(c.tables, !now.stamps[i].equal(f.last))
	}
	return c
}

// stable returns the changed members that are the same in two snapshots, and whether that is all of
// them.
func (c changes) stable(a, b *snapshot) (stable changes, all bool) {
	stable = changes{c.rules && a.rules.sum == b.rules.sum, slices.Clone(c.tables)}
	for i := range c.tables {
		stable.tables[i] = c.tables[i] && a.stamps[i].equal(b.stamps[i])
	}
	return stable, stable.rules == c.rules && slices.Equal(stable.tables, c.tables)
}

// Load reads all files for the first time, calls OnLoad and returns its error. It waits for files
// that change or are unfinished, at most startTime. If ctx ends first it calls nothing.
func (g *Group) Load(ctx context.Context) error {
	all := changes{rules: g.files != nil}
	for range g.tables {
		all.tables = append(all.tables, true)
	}
	if all.rules && len(all.tables) == 0 { // there is no other file to be consistent with
		now := g.snapshot()
		return g.apply(&now, all, nil, true)
	}
	nextReport := time.Duration(0)
	for waited := stopwatch(); ; {
		now := g.snapshot()
		ready := changes{tables: slices.Clone(all.tables)} // the tables that can be used
		read, usable := g.readTables(&now, ready)
		after := g.snapshot()
		settled, allSettled := all.stable(&now, &after)
		if usable && allSettled {
			return g.apply(&now, all, read, true)
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
			if !wait(ctx, g.settle()) {
				return ctx.Err()
			}
			continue
		}
		if all.rules && !settled.rules {
			now.rules = g.files.changingReading()
		}
		read = nil
		for i, f := range g.tables {
			r := f.changingReading()
			if settled.tables[i] {
				r = f.read()
			}
			read = append(read, fileReading{f, r})
		}
		return g.apply(&now, all, read, true)
	}
}

// Run calls OnLoad after every change of the files since they were last read, until ctx ends.
func (g *Group) Run(ctx context.Context) {
	var last []look
	for sinceRead := stopwatch(); ; {
		took := stopwatch()
		now := g.look()                       // before reading, so that a later change is seen
		pause := max(lookInterval, 20*took()) // thousands of files
		if !slices.EqualFunc(now, last, look.equal) || sinceRead() >= readInterval {
			last = now
			g.applyChanges(ctx)
			sinceRead = stopwatch()
		}
		if !wait(ctx, pause) {
			return
		}
	}
}

// look is how a file looks without reading it: its names and its stamp.
type look struct {
	name, target string
	stamp        stamp
}

func (l look) equal(other look) bool {
	return l.name == other.name && l.target == other.target && l.stamp.equal(other.stamp)
}

// look looks at all files.
func (g *Group) look() (all []look) {
	if g.files != nil {
		found, err := g.files.locations().list()
		if err != nil {
			all = append(all, look{stamp: stamp{err: err.Error()}})
		}
		for _, f := range found {
			all = append(all, look{f.name, f.target, stampOf(f.name)})
		}
		for _, path := range g.files.lists {
			all = append(all, look{name: path, stamp: stampOf(path)})
		}
	}
	for _, f := range g.tables {
		all = append(all, look{name: f.opt.Path, stamp: stampOf(f.opt.Path)})
	}
	return all
}

func (g *Group) settle() time.Duration {
	if g.files != nil {
		return g.files.opt.Settle
	}
	return g.tables[0].opt.Settle
}

// applyChanges applies the changed members. They are applied together once two snapshots, a settle
// time apart, are equal: then all of them existed at one time between the snapshots. If some members
// keep changing, the others are applied without them after maxUnstableRounds equal snapshots. Two are
// not enough then, since a snapshot may contain files from before and after an update of a volume. An
// unfinished table that does not change delays the others until it is read.
func (g *Group) applyChanges(ctx context.Context) {
	before := g.snapshot()
	unstableRounds := 0
	waited := stopwatch()
	reference := before // the snapshot before the first of these rounds
	for g.changed(&before).hasAny() {
		if !wait(ctx, g.settle()) {
			return
		}
		if g.betweenSnapshots != nil {
			g.betweenSnapshots()
		}
		now := g.snapshot()
		settled, allSettled := g.changed(&now).stable(&before, &now)
		ready := settled
		if !allSettled {
			ready = changes{}
			unstableRounds++
		}
		if !allSettled && unstableRounds >= maxUnstableRounds {
			ready, _ = settled.stable(&reference, &now)
			if !ready.hasAny() {
				unstableRounds = 0
				reference = now
			}
		}
		if ready.hasAny() {
			if tables, usable := g.readTables(&now, ready); usable {
				_ = g.apply(&now, ready, tables, false) // OnLoad reports the error
				if allSettled {
					return
				}
				unstableRounds = 0
				reference = now
			} else {
				allSettled = false
			}
		}
		if !allSettled && waited() >= changingTime {
			g.rejectUnstable(&now, settled)
			return
		}
		before = now
	}
}

// rejectUnstable reports tables that keep changing as errors.
func (g *Group) rejectUnstable(now *snapshot, settled changes) {
	var read []fileReading
	for i, changed := range g.changed(now).tables {
		if changed && !settled.tables[i] {
			read = append(read, fileReading{g.tables[i], g.tables[i].changingReading()})
		}
	}
	_ = g.apply(now, changes{}, read, false) // OnLoad reports the error
}

// maxUnstableRounds is the number of snapshots for which changing members delay the others.
const maxUnstableRounds = 10

// fileReading is a reading of the file of a table.
type fileReading struct {
	file *TableFile
	tableReading
}

// readTables reads the wanted tables. It removes a table from wanted if its file has changed since the
// snapshot now, or is unfinished; usable is true if no table was removed. If a file is known to be
// unfinished, it reads none, since the others may be large.
func (g *Group) readTables(now *snapshot, wanted changes) (all []fileReading, usable bool) {
	usable = true
	for i, f := range g.tables {
		if wanted.tables[i] && f.isUnfinished() {
			wanted.tables[i] = false
			usable = false
		}
	}
	for i, f := range g.tables {
		if usable && wanted.tables[i] {
			r := f.read()
			all = append(all, fileReading{f, r})
			unreadable := r.err != nil && r.stamp.info == nil
			if errors.Is(r.err, errChanged) || errors.Is(r.err, errUnfinished) ||
				!unreadable && !r.stamp.equal(now.stamps[i]) {
				wanted.tables[i] = false
				usable = false
			}
		}
	}
	return all, usable
}

// apply activates the rules of now, if which.rules is set, and the tables in read, or returns why
// not. start is true for the first reading.
func (g *Group) apply(now *snapshot, which changes, read []fileReading, start bool) error {
	defer func() { g.read = nil }()
	for _, r := range read {
		isNew := !r.stamp.equal(r.file.last) // false if it still cannot be read for the same reason
		if start || isNew {
			g.read = append(g.read, r.file.update(r.tableReading))
		}
	}
	switch {
	case which.rules:
		return g.files.apply(now.rules, start) // calls OnLoad
	case len(g.read) == 0:
		return nil
	default:
		return g.onLoad(Change{Tables: g.read})
	}
}
