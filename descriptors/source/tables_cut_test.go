package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
)

// lastUpdate checks that there were n updates. It returns the error or the warnings of the last
// one.
func (k *fakedTable) lastUpdate(n int) string {
	k.t.Helper()
	if len(k.updates) != n {
		k.t.Fatalf("%d updates, want %d: %+v", len(k.updates), n, k.updates)
	}
	u := k.updates[n-1]
	if u.Err != nil {
		return u.Err.Error()
	}
	var lines []string
	for _, d := range u.Diagnostics {
		lines = append(lines, d.String())
	}
	return strings.Join(lines, "\n")
}

// checkDuration calls f and checks that it takes at least least and at most most.
func checkDuration(t *testing.T, least, most time.Duration, f func()) {
	t.Helper()
	start := time.Now() // fake time
	if f(); time.Since(start) < least || time.Since(start) > most {
		t.Errorf("the call took %v, want %v to %v", time.Since(start), least, most)
	}
}

const settled = 110 * time.Millisecond

// TestUnfinishedTable has a writer that stops in the middle of a line: the file is read after five
// seconds without a change, with a warning that names the row.
func TestUnfinishedTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		k := newFakedTable(t, dir)
		write(t, tableOf(1), k.path)
		checkDuration(t, 0, 0, func() { check(t, k.group.Load(t.Context())) })
		cut := k.path + `:3:1: warning: the file does not end with a newline: the row of k="b" may be truncated`

		write(t, tableOf(2)+"b,1", k.path)
		checkDuration(t, unfinishedTime, unfinishedTime+settled, func() { k.poll(nil) })
		if got := k.lastUpdate(2); !strings.HasPrefix(got, cut) {
			t.Errorf("after a file that ends within a line: %s", got)
		}
		if n, _ := k.number("b"); n != 1 {
			t.Errorf("the number of the row is %d", n)
		}

		// The writer continues after a pause of four seconds.
		start := time.Now()
		write(t, tableOf(3)+"b,1", k.path)
		finished := false
		finish := func() {
			if !finished && time.Since(start) >= 4*time.Second {
				finished = true
				write(t, tableOf(3)+"b,12\n", k.path)
			}
		}
		checkDuration(t, 4*time.Second, 4*time.Second+3*settled, func() { k.poll(finish) })
		if n, _ := k.number("b"); k.lastUpdate(3) != "" || n != 12 {
			t.Errorf("after a file was completed: %s, the number of the row is %d", k.lastUpdate(3), n)
		}

		// The writer writes a part each second, which ends within a line.
		start = time.Now()
		parts := 0
		write(t, tableOf(4)+"b,1", k.path)
		checkDuration(t, 19*time.Second, 20*time.Second+2*settled, func() {
			k.poll(func() {
				if n := int(time.Since(start) / time.Second); n > parts && n <= 15 {
					parts = n
					write(t, tableOf(4)+strings.Repeat("\n", n)+"b,1", k.path)
				}
			})
		})
		if got := k.lastUpdate(4); !strings.HasPrefix(got, strings.Replace(cut, ":3:", ":18:", 1)) {
			t.Errorf("after a file was written in parts: %s", got)
		}

		// The writer empties the file and waits before it writes.
		write(t, "", k.path)
		written := false
		start = time.Now()
		checkDuration(t, time.Second, time.Second+4*settled, func() {
			k.poll(func() {
				if !written && time.Since(start) >= time.Second {
					written = true
					write(t, tableOf(4)+"b,77\n", k.path)
				}
			})
		})
		if n, _ := k.number("b"); k.lastUpdate(5) != "" || n != 77 {
			t.Errorf("after a file was emptied and written: %s, the number of the row is %d", k.lastUpdate(5), n)
		}

		// An invalid row may be an incomplete row.
		write(t, tableOf(5)+"b,many", k.path)
		checkDuration(t, unfinishedTime, unfinishedTime+settled, func() { k.poll(nil) })
		if got := k.lastUpdate(6); !strings.HasPrefix(got, k.path+":3:3: error: requests_per_unit") {
			t.Errorf("after an invalid row: %s", got)
		}
	})
}

// TestTableKeepsChanging has a file that is never finished, which is reported once.
func TestTableKeepsChanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		k := newFakedTable(t, dir)
		k.follow(TableOptions{Table: tables.New("t"), Settle: time.Second})
		write(t, tableOf(1), k.path)
		check(t, k.group.Load(t.Context()))
		n := 0
		for _, end := range []string{"b,1", "b,1\n"} {
			next := func() {
				n++
				write(t, tableOf(2)+strings.Repeat("\n", n)+end, k.path)
			}
			next()
			k.poll(next)
			if got := k.lastUpdate(2); got != "read "+k.path+": the file keeps changing; write to another file and rename it" {
				t.Errorf("a file that ends with %q: %s", end, got)
			}
		}
		checkDuration(t, unfinishedTime, unfinishedTime+2*time.Second, func() { write(t, tableOf(3)+"b,1", k.path); k.poll(nil) })
		if n, _ := k.number("a"); n != 3 {
			t.Errorf("the number of the row is %d", n)
		}
	})
}

// TestUnfinishedTablesAtStart checks that a start waits for all tables together, for a bounded
// time.
func TestUnfinishedTablesAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*fakedTable
		for range 3 {
			dir := t.TempDir()
			write(t, tableOf(1)+"b,1", dir, "t.csv")
			all = append(all, newFakedTable(t, dir))
		}
		load := func() error {
			var files []*TableFile
			for _, k := range all {
				k.follow(TableOptions{Table: tables.New("t")})
				files = append(files, k.file)
			}
			return NewGroup(nil, files, func(c Change) (err error) {
				for i, k := range all {
					err = errors.Join(err, k.activate(Change{Tables: c.Tables[i : i+1]}))
				}
				return err
			}).Load(t.Context())
		}
		checkDuration(t, unfinishedTime, unfinishedTime+settled, func() { check(t, load()) })
		for _, k := range all {
			if got := k.lastUpdate(1); !strings.Contains(got, `:3:1: warning: the file does not end with a newline: the row of k="b"`) {
				t.Errorf("the warning is %s", got)
			}
		}

		k := all[0]
		k.follow(TableOptions{Table: tables.New("t")})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		checkDuration(t, time.Second, time.Second, func() {
			if err := k.group.Load(ctx); !errors.Is(err, context.Canceled) || len(k.updates) > 0 {
				t.Errorf("after the start was cancelled: %v, %+v", err, k.updates)
			}
		})

		writes := 0
		for _, k := range all {
			k.fake = func(*fakedSource) { // called on each open
				writes++
				write(t, tableOf(1)+strings.Repeat("\n", writes)+"b,1", k.path)
			}
		}
		checkDuration(t, startTime, startTime+settled, func() {
			if err := load(); !errors.Is(err, errChanging) {
				t.Errorf("Load with files that keep changing: %v", err)
			}
		})
		for _, k := range all {
			k.lastUpdate(1)
			if err := k.updates[0].Err; !errors.Is(err, errChanging) && !errors.Is(err, errUnfinished) {
				t.Errorf("Load with a file that keeps changing: %v", err)
			}
		}
	})
}

// tableOfRows returns a table of n rows.
func tableOfRows(n int) string {
	var b strings.Builder
	b.WriteString("k,requests_per_unit\n")
	for i := range n {
		fmt.Fprintf(&b, "k%d,%d\n", i, i+1)
	}
	return b.String()
}

// TestTableLosesRows checks that the loss of more than half of the rows causes a warning, and the
// loss of all rows an error.
func TestTableLosesRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		k := newFakedTable(t, dir)
		for i, step := range []struct {
			rows int
			want string
		}{
			{0, "warning: the file has no rows: the rules' own numbers apply to all keys"},
			{10, ""},
			{5, ""},
			{2, "warning: the file has 2 rows, but the table had 5: more than half are missing"},
			{3, ""},
			{1, "warning: the file has 1 row, but the table had 3: more than half are missing"},
			{0, "error: the file has no rows, but the table has 1 row"},
			{4, ""},
			{0, "error: the file has no rows, but the table has 4 rows"},
		} {
			write(t, tableOfRows(step.rows), k.path)
			k.poll(nil)
			if got := k.lastUpdate(i + 1); got != step.want && got != k.path+": "+step.want {
				t.Errorf("%d: %d rows: %s, want %s", i, step.rows, got, step.want)
			}
		}
		if n := k.file.opt.Table.Rows().Len(); n != 4 {
			t.Errorf("the table has %d rows, want those before the loss", n)
		}
		k.follow(TableOptions{Table: k.file.opt.Table, AllowEmpty: true})
		k.poll(nil)
		if got := k.lastUpdate(1); k.file.opt.Table.Rows().Len() != 0 || !strings.Contains(got, "warning: the file has no rows") {
			t.Errorf("with AllowEmpty: %s", got)
		}
	})
}
