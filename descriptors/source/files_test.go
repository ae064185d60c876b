package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// write writes a file, and creates its directories.
func write(t *testing.T, content string, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	must.OK(t, os.MkdirAll(filepath.Dir(name), 0o700))
	must.OK(t, os.WriteFile(name, []byte(content), 0o600))
}

func link(t *testing.T, target string, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	must.OK(t, os.MkdirAll(filepath.Dir(name), 0o700))
	must.OK(t, os.Symlink(target, name))
}

// contents returns the files with their names relative to dir, in order.
func contents(t *testing.T, dir string, files []File) []string {
	t.Helper()
	var all []string
	for _, f := range files {
		name, err := filepath.Rel(dir, f.Name)
		must.OK(t, err)
		all = append(all, name+"="+string(f.Content))
	}
	return all
}

func TestReadDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, "2", dir, "b.yaml")
	write(t, "1", dir, "a")
	write(t, "3", dir, "sub/deep/c.txt")
	write(t, "", dir, "empty.yaml")
	write(t, "hidden", dir, ".a.yaml.swp")
	for _, backup := range []string{"a~", "b.yaml.bak", "b.yaml.swp", "b.yaml.orig", "b.yaml.rej", "b.yaml.old", "sub/b.yaml.swo", "#b.yaml#"} {
		write(t, "an older version", dir, backup)
	}
	write(t, "4", dir, "sub/deep/d.bak/not-one.yaml")
	write(t, "hidden", dir, ".git/config")
	write(t, "hidden", dir, "sub/..data/c")
	write(t, "linked", dir, ".hidden/target")
	link(t, ".hidden/target", dir, "link.yaml")
	link(t, ".hidden", dir, "linked-dir")
	link(t, "..", dir, "sub/up")
	link(t, ".", dir, "self")

	files, err := readAll([]string{dir})
	must.OK(t, err)
	want := []string{"a=1", "b.yaml=2", "empty.yaml=", "link.yaml=linked", "linked-dir/target=linked", "sub/deep/c.txt=3", "sub/deep/d.bak/not-one.yaml=4"}
	if diff := cmp.Diff(want, contents(t, dir, files)); diff != "" {
		t.Errorf("Read (-want +got):\n%s", diff)
	}
}

func readAll(paths []string) ([]File, error) {
	r, err := (&locations{paths: paths}).read()
	return r.files, err
}

func TestReadPathsInOrder(t *testing.T) {
	dir := t.TempDir()
	write(t, "1", dir, "d/a")
	write(t, "2", dir, "z")
	write(t, "3", dir, ".named") // an explicit path may begin with a dot
	write(t, "5", dir, "named.bak")
	write(t, "4", dir, ".dotted/e")
	files, err := readAll([]string{
		filepath.Join(dir, "z"), filepath.Join(dir, "d"), filepath.Join(dir, ".named"), filepath.Join(dir, ".dotted"), filepath.Join(dir, "named.bak"),
	})
	must.OK(t, err)
	if diff := cmp.Diff([]string{"z=2", "d/a=1", ".named=3", ".dotted/e=4", "named.bak=5"}, contents(t, dir, files)); diff != "" {
		t.Errorf("Read (-want +got):\n%s", diff)
	}
}

func TestReadErrorsNameThePath(t *testing.T) {
	dir := t.TempDir()
	link(t, "nowhere", dir, "dangling/link.yaml")
	for _, path := range []string{"missing", "dangling"} {
		path = filepath.Join(dir, path)
		files, err := readAll([]string{path})
		if files != nil || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("Read(%s) = %v, %v, want an error that names it", path, files, err)
		}
	}
	write(t, "", dir, "big/a")
	write(t, "x", dir, "big/b")
	must.OK(t, os.Truncate(filepath.Join(dir, "big/a"), maxSourceBytes))
	pipe := filepath.Join(dir, "special/pipe")
	write(t, "", dir, "special/a")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	if _, err := readAll([]string{filepath.Dir(pipe)}); err == nil || !strings.Contains(err.Error(), pipe) {
		t.Errorf("Read of a directory with a pipe = %v, want an error that names it", err)
	}
	_, err := readAll([]string{filepath.Join(dir, "big")})
	if err == nil || !strings.Contains(err.Error(), "big/b") || !strings.Contains(err.Error(), "64 MiB") {
		t.Errorf("Read beyond the maximum size = %v, want an error that names the file and the bound", err)
	}
}

// TestReadReturnsOneVersion changes the link ..data of a ConfigMap volume, like the kubelet, while
// files are read. The result must be one version.
func TestReadReturnsOneVersion(t *testing.T) {
	dir := t.TempDir()
	version := func(v string) map[string]string {
		return map[string]string{"a.yaml": v, "b.yaml": v, "c.yaml": v}
	}
	mount(t, dir, version("1"))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, v := range []string{"1", "2"} {
				select {
				case <-stop:
					return
				default:
					mount(t, dir, version(v))
				}
			}
		}
	}()
	defer func() {
		close(stop)
		<-done
	}()
	read := 0
	for range effort.Times(t, 200) {
		files, err := readAll([]string{dir})
		if err != nil {
			continue // an error is allowed, a mix of versions is not
		}
		read++
		got := contents(t, dir, files)
		v := strings.TrimPrefix(got[0], "a.yaml=")
		if diff := cmp.Diff([]string{"a.yaml=" + v, "b.yaml=" + v, "c.yaml=" + v}, got); diff != "" {
			t.Fatalf("Read mixes versions:\n%s", diff)
		}
	}
	if read == 0 {
		t.Error("Read never succeeded")
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write(t, "domain: a\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n", dir, "a.yaml")
	write(t, "domain: b\nunit: hour\n", dir, "b.yaml")
	set, ds, err := Load([]string{dir}, "", descriptors.Options{})
	if err != nil || set == nil || len(set.Limits) != 1 || len(ds) != 1 {
		t.Fatalf("Load = %+v, %v, %v, want one limit and one warning", set, ds, err)
	}
	if len(set.Hash) != 16 {
		t.Errorf("Hash = %q, want 16 digits", set.Hash)
	}
	again, _, _ := Load([]string{dir}, "", descriptors.Options{})
	other := t.TempDir()
	write(t, "domain: b\nunit: hour\n# the same rules elsewhere, in other files\n", other, "1.yaml")
	write(t, "domain: a\ndescriptors: [{key: k, rate_limit: {requests_per_unit: 1, unit: HOUR}}]\n", other, "sub/2.yaml")
	elsewhere, _, _ := Load([]string{other}, "", descriptors.Options{})
	if elsewhere == nil || elsewhere.Hash != set.Hash {
		t.Errorf("the same rules in other files give the set %+v, want the hash %s", elsewhere, set.Hash)
	}
	write(t, "domain: c\n", dir, "b.yaml")
	changed, _, _ := Load([]string{dir}, "", descriptors.Options{})
	if again.Hash != set.Hash || changed.Hash == set.Hash {
		t.Errorf("hashes %s, %s and after a change %s, want the first two to be equal", set.Hash, again.Hash, changed.Hash)
	}
}

// TestLoadNotesBackups has a backup that would be a duplicate domain.
func TestLoadNotesBackups(t *testing.T) {
	dir := t.TempDir()
	write(t, "domain: a\n", dir, "a.yaml")
	write(t, "domain: a\n", dir, "a.yaml~")
	set, ds, err := Load([]string{dir}, "", descriptors.Options{})
	want := dir + "/a.yaml~: note: not read: the file has the name of a backup"
	if set == nil || err != nil || len(ds) != 1 || ds[0].String() != want || ds[0].Severity != rules.Note {
		t.Errorf("Load = %v, %v, %v, want a set and %q", set, ds, err, want)
	}
	must.OK(t, os.Remove(filepath.Join(dir, "a.yaml~")))
	if again, ds, _ := Load([]string{dir}, "", descriptors.Options{}); len(ds) != 0 || again.Hash != set.Hash {
		t.Errorf("without the backup Load = %v, %v, want the same hash and no note", again, ds)
	}
}

func TestLoadNothing(t *testing.T) {
	set, ds, err := Load([]string{t.TempDir()}, "", descriptors.Options{})
	if set != nil || ds != nil || !errors.Is(err, ErrNoFile) {
		t.Errorf("Load of an empty directory = %v, %v, %v, want %v", set, ds, err, ErrNoFile)
	}
	stream, err := ReadStream("stdin", strings.NewReader(rulesOf(1)))
	must.OK(t, err)
	set, _, err = Load([]string{t.TempDir()}, "", descriptors.Options{}, stream)
	if err != nil || len(set.Limits) != 1 || set.Limits[0].Pos.File != "stdin" {
		t.Errorf("Load of a pipe = %+v, %v, want the limit in it", set, err)
	}
}
