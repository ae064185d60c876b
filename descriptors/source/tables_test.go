package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// followTable loads and follows the file of a table. It sends updates to the channel.
func followTable(t *testing.T, path string) <-chan TableUpdate {
	t.Helper()
	updates := make(chan TableUpdate, 100)
	f := NewTableFile(TableOptions{
		Table: tables.New("t"), Path: path, Settle: 10 * time.Millisecond,
	})
	g := NewGroup(nil, []*TableFile{f}, func(c Change) error {
		updates <- c.Tables[0]
		return c.Tables[0].Err
	})
	_ = g.Load(t.Context()) // the update has the error
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return updates
}

// awaitRow waits for an update in which row a has the given number. -1 means an error.
func awaitRow(t *testing.T, updates <-chan TableUpdate, number int) TableUpdate {
	t.Helper()
	for {
		u := <-updates
		if number < 0 && u.Err != nil {
			return u
		}
		if u.Rows != nil {
			if row, ok := u.Rows.Get([]string{"a"}); ok && int(row.RequestsPerUnit) == number {
				return u
			}
		}
	}
}

func tableOf(number int) string { return "k,requests_per_unit\na," + strconv.Itoa(number) + "\n" }

// TestTableFile changes the file of a table in each way.
func TestTableFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "t.csv")
		write(t, tableOf(1), path)
		updates := followTable(t, path)
		awaitRow(t, updates, 1)
		write(t, tableOf(22), path) // in place
		awaitRow(t, updates, 22)
		write(t, tableOf(33), dir, "next") // of the same size
		rename(t, filepath.Join(dir, "next"), path)
		awaitRow(t, updates, 33)
		write(t, tableOf(33)+"b,many\n", path)
		if u := awaitRow(t, updates, -1); !strings.Contains(u.Err.Error(), path+":3:3: error: requests_per_unit") {
			t.Errorf("after an invalid row: %v", u.Err)
		}
		write(t, tableOf(4), path)
		awaitRow(t, updates, 4)
		must.OK(t, os.Remove(path))
		if u := awaitRow(t, updates, -1); !errors.Is(u.Err, os.ErrNotExist) {
			t.Errorf("after the file was removed: %v", u.Err)
		}
		write(t, tableOf(5), dir, "data/t.csv")
		link(t, "data/t.csv", dir, "t.csv")
		awaitRow(t, updates, 5)
		write(t, tableOf(6), dir, "data/t.csv") // the target of the link
		awaitRow(t, updates, 6)
		dir = t.TempDir()
		mount(t, dir, map[string]string{"cm.csv": tableOf(7)})
		updates = followTable(t, filepath.Join(dir, "cm.csv"))
		awaitRow(t, updates, 7)
		mount(t, dir, map[string]string{"cm.csv": tableOf(8)})
		awaitRow(t, updates, 8)
	})
}

// TestTablePathsThatAreNotFiles checks that such paths are rejected before they are read, which
// could block.
func TestTablePathsThatAreNotFiles(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	write(t, "", large)
	must.OK(t, os.Truncate(large, maxTableBytes+1))
	pipe := filepath.Join(t.TempDir(), "pipe")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	for path, want := range map[string]string{
		t.TempDir():    "not a regular file",
		"/dev/zero":    "not a regular file",
		pipe:           "not a regular file",
		large:          "512 MiB; the maximum for a table is 512 MiB",
		large + ".not": "no such file",
	} {
		if rows, _, err := ReadTable(tables.New("t"), path); rows != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	must.OK(t, os.Truncate(large, 100<<20))
	if _, _, err := ReadTable(tables.New("t"), large); err == nil || !strings.Contains(err.Error(), "a row is longer than 64 KiB") {
		t.Errorf("100 MiB of zeros: %v", err)
	}
}
