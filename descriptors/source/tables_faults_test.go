package source

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// fakedTable is the file of a table with fake operations, and records all updates.
type fakedTable struct {
	t       *testing.T
	path    string
	file    *TableFile
	group   *Group             // of this file only
	fake    func(*fakedSource) // nil for none
	updates []TableUpdate
}

// newFakedTable follows the file t.csv of a directory and activates its rows.
func newFakedTable(t *testing.T, dir string) *fakedTable {
	t.Helper()
	k := &fakedTable{t: t, path: filepath.Join(dir, "t.csv")}
	k.follow(TableOptions{Table: tables.New("t")})
	return k
}

// follow follows the file with other options.
func (k *fakedTable) follow(opt TableOptions) {
	k.updates = nil
	opt.Path = k.path
	k.file = NewTableFile(opt)
	k.group = NewGroup(nil, []*TableFile{k.file}, k.activate)
	k.file.open = func(path string) (tableSource, error) {
		in, err := openTable(path)
		if err != nil || k.fake == nil {
			return in, err
		}
		f := &fakedSource{tableSource: in, read: in.Read, readAt: in.ReadAt, stat: in.Stat}
		if k.fake(f); f.open != nil {
			_ = in.Close()
			return nil, f.open
		}
		return f, nil
	}
}

// activate activates the rows of a change.
func (k *fakedTable) activate(c Change) error {
	u := c.Tables[0]
	k.updates = append(k.updates, u)
	if u.Err == nil {
		u.Table.Replace(u.Rows)
	}
	return u.Err
}

// poll checks the file for changes several times, as after several events. next, if not nil, is
// called whenever it waits.
func (k *fakedTable) poll(next func()) {
	if next == nil {
		next = func() {}
	}
	for range 3 {
		poll(k.t.Context(), k.group, next)
	}
}

// fakedSource is an open file whose operations a test replaces.
type fakedSource struct {
	tableSource
	open   error
	read   func([]byte) (int, error)
	readAt func([]byte, int64) (int, error)
	stat   func() (fs.FileInfo, error)
}

func (f *fakedSource) Read(p []byte) (int, error) { return f.read(p) }

func (f *fakedSource) ReadAt(p []byte, at int64) (int, error) { return f.readAt(p, at) }

func (f *fakedSource) Stat() (fs.FileInfo, error) { return f.stat() }

func failed(op string, number syscall.Errno) error {
	return &fs.PathError{Op: op, Path: "t.csv", Err: number}
}

// number returns the number of the row with the given key.
func (k *fakedTable) number(key string) (n uint32, known bool) {
	row, known := k.file.opt.Table.Rows().Get([]string{key})
	return row.RequestsPerUnit, known
}

// TestTableReadErrors fails each operation on the file: the error is reported once, and the file is
// read again as soon as the operation succeeds, even if the file did not change.
func TestTableReadErrors(t *testing.T) {
	long := "k,requests_per_unit\na,2\n" + strings.Repeat("\n", 1<<17)
	for name, tt := range map[string]struct {
		fake func(*fakedSource)
		want string
	}{
		"no permission": {func(f *fakedSource) { f.open = addUser(failed("open", syscall.EACCES)) }, "permission denied: sluice runs as user"},
		"stale handle":  {func(f *fakedSource) { f.open = failed("open", syscall.ESTALE) }, "stale"},
		"stat fails": {func(f *fakedSource) {
			f.stat = func() (fs.FileInfo, error) { return nil, failed("stat", syscall.ESTALE) }
		}, "stale"},
		"stat fails after reading": {func(f *fakedSource) {
			stat := f.stat
			f.stat = func() (fs.FileInfo, error) {
				f.stat = func() (fs.FileInfo, error) { return nil, failed("stat", syscall.EIO) }
				return stat()
			}
		}, "input/output error"},
		"read fails": {func(f *fakedSource) {
			f.read = func([]byte) (int, error) { return 0, failed("read", syscall.EIO) }
			f.readAt = func([]byte, int64) (int, error) { return 0, failed("read", syscall.EIO) }
		}, "input/output error"},
		"read fails after half": {func(f *fakedSource) {
			read := io.LimitReader(f.tableSource, 1<<16).Read
			f.read = func(p []byte) (int, error) {
				n, err := read(p)
				if errors.Is(err, io.EOF) {
					err = failed("read", syscall.ESTALE)
				}
				return n, err
			}
		}, "stale"},
		"the file is truncated": {func(f *fakedSource) { f.read = io.LimitReader(f.tableSource, 1<<16).Read }, "unexpected EOF: 65536 bytes of"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				write(t, tableOf(1), dir, "t.csv")
				k := newFakedTable(t, dir)
				must.OK(t, k.group.Load(t.Context()))
				k.fake = tt.fake
				write(t, long, k.path)
				k.poll(nil)
				if n, _ := k.number("a"); len(k.updates) != 2 || k.updates[1].Err == nil || !strings.Contains(k.updates[1].Err.Error(), tt.want) || n != 1 {
					t.Fatalf("%d updates, the number of the row is %d; want one update with %s", len(k.updates)-1, n, tt.want)
				}
				k.fake = nil
				k.poll(nil)
				if n, _ := k.number("a"); len(k.updates) != 3 || k.updates[2].Err != nil || n != 2 {
					t.Errorf("updates %+v, the number of the row is %d; want the file to be read again", k.updates[2:], n)
				}
			})
		})
	}
}

// TestTableReplacedByOtherFileType replaces the file by something that is not a regular file: this
// is reported once, even if that changes, and the rows stay.
func TestTableReplacedByOtherFileType(t *testing.T) {
	for name, tt := range map[string]struct {
		replace, change func(path string) error // nil if not used
		want            string
	}{
		"nothing": {nil, nil, "no such file"},
		"a directory": {
			func(path string) error { return os.Mkdir(path, 0o700) },
			func(path string) error { return os.Mkdir(filepath.Join(path, "b"), 0o700) }, "not a regular file",
		},
		"a pipe":            {func(path string) error { return syscall.Mkfifo(path, 0o600) }, nil, "not a regular file"},
		"a device":          {func(path string) error { return os.Symlink("/dev/zero", path) }, nil, "not a regular file"},
		"a link to itself":  {func(path string) error { return os.Symlink(path, path) }, nil, "too many levels of symbolic links"},
		"a link to nothing": {func(path string) error { return os.Symlink("nothing", path) }, nil, "no such file"},
		"a link through a file": {
			func(path string) error {
				return errors.Join(os.WriteFile(path+"~", nil, 0o600), os.Symlink(path+"~/t.csv", path))
			}, nil, "not a directory",
		},
		"links in a loop": {
			func(path string) error { return errors.Join(os.Symlink(path+"~", path), os.Symlink(path, path+"~")) },
			nil, "too many levels of symbolic links",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				write(t, tableOf(1), dir, "t.csv")
				k := newFakedTable(t, dir)
				must.OK(t, k.group.Load(t.Context()))
				check(t, os.Remove(k.path))
				for _, do := range []func(string) error{tt.replace, tt.change} {
					if do != nil {
						check(t, do(k.path))
					}
					k.poll(nil)
				}
				if n, _ := k.number("a"); len(k.updates) != 2 || k.updates[1].Err == nil || !strings.Contains(k.updates[1].Err.Error(), tt.want) || n != 1 {
					t.Fatalf("%d updates, the number of the row is %d; want one update with %s", len(k.updates)-1, n, tt.want)
				}
				check(t, os.RemoveAll(k.path))
				write(t, tableOf(2), k.path)
				k.poll(nil)
				if n, _ := k.number("a"); len(k.updates) != 3 || k.updates[2].Err != nil || n != 2 {
					t.Errorf("updates %+v, the number of the row is %d; want the rows of the new file", k.updates[2:], n)
				}
			})
		})
	}
}

// TestTableMissingAtStart checks that a missing file is reported once, and read when it appears.
func TestTableMissingAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newFakedTable(t, t.TempDir())
		if err := k.group.Load(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Load without a file: %v", err)
		}
		k.poll(nil)
		k.lastUpdate(1)
		write(t, tableOf(2), k.path)
		k.poll(nil)
		if n, _ := k.number("a"); k.lastUpdate(2) != "" || n != 2 {
			t.Errorf("the number of the row is %d", n)
		}
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	must.OK(t, err)
}

// TestOpenPipeDoesNotBlock opens a pipe that has just replaced a file.
func TestOpenPipeDoesNotBlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	check(t, syscall.Mkfifo(path, 0o600))
	if f, err := openNonblocking(path); f != nil || err == nil || !strings.Contains(err.Error(), path+": not a regular file") {
		t.Errorf("opened %v, %v", f, err)
	}
}

// TestTableChangesDuringRead checks that rows are never a mix of two versions of the file.
func TestTableChangesDuringRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		k := newFakedTable(t, dir)
		write(t, tableOf(1), k.path)
		versions := []string{tableOf(1) + "b,2\n", tableOf(3) + "b,2\nc,3\n"}
		k.fake = func(f *fakedSource) {
			f.read = func(p []byte) (int, error) {
				n, err := f.tableSource.Read(p)
				if len(versions) > 0 {
					write(t, versions[0], k.path)
					versions = versions[1:]
				}
				return n, err
			}
		}
		k.poll(nil)
		if n, _ := k.number("a"); len(k.updates) != 1 || k.updates[0].Err != nil || n != 3 {
			t.Errorf("updates %+v, the number of the row is %d; want only the last file", k.updates, n)
		}
		// At the start.
		versions = []string{tableOf(4)}
		write(t, tableOf(55), k.path)
		k.follow(TableOptions{Table: tables.New("t"), Settle: time.Second})
		if err := k.group.Load(t.Context()); err != nil || len(k.updates) != 1 {
			t.Fatalf("Load = %v, updates %+v", err, k.updates)
		}
		if n, _ := k.number("a"); n != 4 {
			t.Errorf("the number of the row is %d, want that of the last file", n)
		}
	})
}
