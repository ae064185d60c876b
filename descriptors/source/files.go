package source

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/envoygateway"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
)

// maxSourceBytes bounds the size of all files together.
const maxSourceBytes = 64 << 20

// largeSource is the size of files from which garbage is collected between parsing and compiling.
// Otherwise the garbage, some 30 MB for 100,000 rules, is in memory together with two sets of
// rules.
const largeSource = 1 << 20

// File is a file of rules. Name is the path at which it was found.
type File struct {
	Name    string
	Content []byte
}

// sources are the files of rules, and the file of defaults if there is one.
type sources struct {
	files    []File
	defaults *File
	// backups are the names of files that are not read.
	backups []string
	// lists are the files of ranges that the rules name, sorted by path.
	lists []rangeList
}

// locations are the paths of rules.
type locations struct {
	paths []string
	// prefix selects the files below directories whose relative path, with dots for slashes, begins
	// with it.
	prefix string
	// defaults is the file of defaults, or empty, and tables are the files of tables. Below one of
	// the paths they are not files of rules.
	defaults string
	tables   []string
	// lists may be nil.
	lists listNames
}

func tableFiles(all *tables.Registry) (paths []string) {
	for _, name := range all.Names() {
		if e, _ := all.Table(name); e.Path != "" { // the table exists
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// allPaths returns all paths to read. The file of defaults is the last.
func (p *locations) allPaths() []string {
	if p.defaults == "" {
		return p.paths
	}
	return append(slices.Clip(p.paths), p.defaults)
}

// read reads all files. If a link changes meanwhile, as ..data of a ConfigMap volume does, it
// starts again, since the files belong together.
func (p *locations) read() (sources, error) {
	const attempts = 5
	for i := 1; ; i++ {
		all, settled, err := p.readOnce()
		switch {
		case err == nil && settled:
			return all, nil
		case i < attempts && (err == nil || errors.Is(err, fs.ErrNotExist)):
			// A file changed, or was removed after it was listed, for example with the old
			// directory of a ConfigMap.
		case err != nil:
			return sources{}, addUser(err)
		default:
			return sources{}, fmt.Errorf("read %s: files keep changing", strings.Join(p.allPaths(), ", "))
		}
	}
}

// readOnce also reports whether the names led to the same files before and after reading.
func (p *locations) readOnce() (all sources, settled bool, err error) {
	before, err := p.list()
	if err != nil {
		return all, false, err
	}
	var last foundFile
	if p.defaults != "" {
		if last = before[len(before)-1]; last.name != p.defaults {
			return all, false, fmt.Errorf("read %s: is a directory; the defaults must be a file", p.defaults)
		}
	}
	left := int64(maxSourceBytes)
	for _, f := range before {
		if f.backup {
			all.backups = append(all.backups, f.name)
			continue
		}
		content, err := readFile(f.name, left)
		if err != nil {
			return all, false, err
		}
		left -= int64(len(content))
		if file := (File{Name: f.name, Content: content}); p.defaults != "" && f.target == last.target {
			all.defaults = &file // if it is also below a path, the last one found has the name p.defaults
		} else {
			all.files = append(all.files, file)
		}
	}
	all.files, all.lists = readLists(all.files, all.defaults, p.lists, left)
	after, err := p.list()
	if err != nil {
		return all, false, err
	}
	return all, slices.Equal(before, after), nil
}

// addUser adds the user of this process to a permission error.
func addUser(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	groups, _ := os.Getgroups() // only for the message
	return fmt.Errorf("%w: sluice runs as user %d with the groups %v; let that read the files and enter their directories (chmod, or defaultMode and fsGroup in Kubernetes)",
		err, os.Geteuid(), append(groups, os.Getegid()))
}

// foundFile is a file. target is its path with links resolved.
type foundFile struct {
	name, target string
	backup       bool
}

func (p *locations) list() ([]foundFile, error) {
	var rows []string // the files of tables
	for _, path := range p.tables {
		// Otherwise it does not exist.
		if target, err := filepath.EvalSymlinks(absolute(path)); err == nil {
			rows = append(rows, target)
		}
	}
	var all []foundFile
	for _, path := range p.allPaths() {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			f, err := locate(path, info)
			if err != nil {
				return nil, err
			}
			all = append(all, f)
			continue
		}
		var below []foundFile
		if err := walk(path, nil, func(f foundFile) { below = append(below, f) }); err != nil {
			return nil, err
		}
		below = slices.DeleteFunc(below, func(f foundFile) bool {
			rel, err := filepath.Rel(path, f.name)
			return err != nil || !strings.HasPrefix(strings.ReplaceAll(rel, "/", "."), p.prefix) ||
				slices.Contains(rows, f.target)
		})
		for i := range below {
			below[i].backup = rulefile.IsBackup(below[i].name)
		}
		slices.SortFunc(below, func(a, b foundFile) int { return cmp.Compare(a.name, b.name) })
		all = append(all, below...)
	}
	return all, nil
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// locate rejects pipes and devices, since reading them may never end.
func locate(path string, info fs.FileInfo) (foundFile, error) {
	if !info.Mode().IsRegular() {
		return foundFile{}, notRegular(path)
	}
	target, err := filepath.EvalSymlinks(absolute(path))
	return foundFile{name: path, target: target}, err
}

// walk calls file for every file below dir. It skips names that begin with a dot. parents are the
// directories above dir; links back to one of them are not followed.
func walk(dir string, parents []fs.FileInfo, file func(foundFile)) error {
	self, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(parents, func(p fs.FileInfo) bool { return os.SameFile(p, self) }) {
		return nil
	}
	parents = append(parents, self)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			if err := walk(path, parents, file); err != nil {
				return err
			}
		default:
			f, err := locate(path, info)
			if err != nil {
				return err
			}
			file(f)
		}
	}
	return nil
}

func readFile(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return readUpTo(path, f, info.Size(), limit)
}

// openRegular opens a regular file for reading. It does not open devices, since that may have an
// effect.
func openRegular(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, notRegular(path)
	}
	return openNonblocking(path)
}

// openNonblocking opens a file without blocking, and fails if a pipe has replaced it.
func openNonblocking(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(path)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

func notRegular(path string) error {
	return &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
}

// readUpTo reads content that is likely of the given size and must not exceed limit.
func readUpTo(name string, r io.Reader, size, limit int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(size, limit)) + bytes.MinRead) // room for the read that finds the end
	if _, err := b.ReadFrom(io.LimitReader(r, limit+1)); err != nil {
		return nil, err
	}
	content := b.Bytes()
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("read %s: the files exceed %d MiB in total", name, maxSourceBytes>>20)
	}
	return content, nil
}

// ReadStream reads a stream, such as standard input, as a file with the given name. More than 64
// MiB is an error.
func ReadStream(name string, r io.Reader) (File, error) {
	content, err := readUpTo(name, r, 0, maxSourceBytes)
	return File{Name: name, Content: content}, err
}

// ErrNoFile means that the paths contain no file of rules.
var ErrNoFile = errors.New("no file of rules")

// requireFiles returns an error if no file was found in paths.
func (r sources) requireFiles(paths []string, prefix string) error {
	if len(r.files) > 0 {
		return nil
	}
	begins := ""
	if prefix != "" {
		begins = fmt.Sprintf(" whose relative path, with dots for slashes, begins with %q", prefix)
	}
	return fmt.Errorf("%w in %s%s", ErrNoFile, strings.Join(paths, ", "), begins)
}

// Load reads, parses and compiles the files of paths and the file of defaults, unless that is
// empty; see [rulefile.Parse], [rulefile.ParseDefaults] and [descriptors.Compile]. A directory
// means every file below it, sorted by path, except backups, files of opt's tables or of ranges, and
// files with an element of the relative path that begins with a dot. Links are followed. Streams of
// [ReadStream] come after the files. The Set is nil if a diagnostic is an error. The error is not
// nil only if a file is missing or cannot be read, if there is none, or if all together exceed 64
// MiB.
func Load(
	paths []string, defaults string, opt descriptors.Options, streams ...File,
) (*descriptors.Set, rules.Diagnostics, error) {
	all, err := (&locations{paths: paths, defaults: defaults, tables: tableFiles(opt.Tables)}).read()
	if err != nil {
		return nil, nil, err
	}
	streams, lists := readLists(streams, nil, nil, maxSourceBytes)
	all.files = append(all.files, streams...)
	all.lists = append(all.lists, lists...)
	if err := all.requireFiles(paths, ""); err != nil {
		return nil, nil, err
	}
	set, ds := all.build(opt, new(envoygateway.Objects))
	return set, ds, nil
}

// build parses and compiles files. It clears their contents. Objects of Envoy Gateway make rules
// unless gateway is nil.
func (r sources) build(opt descriptors.Options, gateway *envoygateway.Objects) (*descriptors.Set, rules.Diagnostics) {
	var configs []rules.Config
	var found rules.Diagnostics
	var names []string
	size := 0
	ranges := map[string][]rules.Range{}
	for i := range r.files {
		f := &r.files[i]
		size += len(f.Content)
		c, ds := rulefile.ParseObjects(f.Name, f.Content, gateway)
		f.Content = nil // so that it can be freed
		for j := range c {
			r.addRanges(c[j].Descriptors, ranges, &found)
			r.addRanges(c[j].Exempt, ranges, &found)
		}
		configs = append(configs, c...)
		found = append(found, ds...)
		names = append(names, f.Name)
	}
	if gateway != nil {
		c, ds := gateway.Rules(len(configs) > 0 || found.HasErrors())
		configs = append(configs, c...)
		found = append(found, ds...)
	}
	if r.defaults != nil {
		var ds rules.Diagnostics
		opt.Defaults, ds = r.parseDefaults(ranges)
		found = append(found, ds...)
		names = append(names, r.defaults.Name)
	}
	for i := range r.lists {
		names = append(names, r.lists[i].Name)
	}
	for _, name := range r.backups {
		found = append(found, rules.Diagnostic{
			Pos: rules.Pos{File: name}, Severity: rules.Note, Message: rulefile.NotReadBackup,
		})
		names = append(names, name)
	}
	if size > largeSource {
		runtime.GC()
	}
	return descriptors.Build(configs, found, names, opt)
}

// sum returns a hash of the files and their names.
func (r sources) sum() [sha256.Size]byte {
	var texts [][]byte
	for _, f := range r.files {
		texts = append(texts, []byte(f.Name), f.Content)
	}
	if r.defaults != nil {
		// The nil separates them: no file of rules has the name "".
		texts = append(texts, nil, []byte(r.defaults.Name), r.defaults.Content)
	}
	for i := range r.lists {
		l := &r.lists[i]
		texts = append(texts, nil, []byte(l.Name), l.Content, []byte(fmt.Sprint(l.err)))
	}
	return Digest(texts...)
}
