package source

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// rangeList is a file of ranges that rules name (cidr: { file: NAME }).
type rangeList struct {
	File
	err error // why it cannot be read
}

// listNames caches the names of lists in files of rules, by the digest of the file, since finding
// them takes as long as parsing the file.
type listNames map[[sha256.Size]byte][]string

// of returns the paths of the lists that a file of rules or defaults names. They are relative to its
// directory. find returns the names.
func (n listNames) of(f *File, find func(file string, content []byte) []string) (paths []string) {
	if !bytes.Contains(f.Content, []byte("cidr")) || !bytes.Contains(f.Content, []byte("file")) {
		return nil
	}
	sum := Digest(f.Content)
	names, known := n[sum]
	if !known {
		names = find(f.Name, f.Content)
		if n != nil {
			if len(n) >= 100 { // most are of earlier versions
				clear(n)
			}
			n[sum] = names
		}
	}
	for _, name := range names {
		paths = append(paths, listPath(f.Name, name))
	}
	return paths
}

// listPath returns the path of a list that a file of rules names.
func listPath(rulesFile, list string) string {
	if filepath.IsAbs(list) {
		return list
	}
	return filepath.Join(filepath.Dir(rulesFile), list)
}

// readLists reads the lists that the files and defaults, if not nil, name, at most limit bytes.
// Lists are not files of rules, so it returns the other files.
func readLists(files []File, defaults *File, names listNames, limit int64) (others []File, lists []rangeList) {
	var paths, targets []string
	for i := range files {
		paths = append(paths, names.of(&files[i], rulefile.RangeFiles)...)
	}
	if defaults != nil {
		paths = append(paths, names.of(defaults, rulefile.DefaultsRangeFiles)...)
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		l := rangeList{File: File{Name: path}}
		if l.Content, l.err = readFile(path, limit); l.err != nil {
			l.err = addUser(l.err)
		}
		limit -= int64(len(l.Content))
		lists = append(lists, l)
		if target, err := filepath.EvalSymlinks(absolute(path)); err == nil {
			targets = append(targets, target)
		}
	}
	if len(targets) == 0 {
		return files, lists
	}
	return slices.DeleteFunc(files, func(f File) bool {
		target, err := filepath.EvalSymlinks(absolute(f.Name))
		return err == nil && slices.Contains(targets, target)
	}), lists
}

// parseDefaults reads the file of defaults. parsed has the lists read so far.
func (r sources) parseDefaults(parsed map[string][]rules.Range) (*rules.Defaults, rules.Diagnostics) {
	d, found := rulefile.ParseDefaults(r.defaults.Name, r.defaults.Content)
	if d != nil {
		r.addRanges(d.Selections(), parsed, &found)
	}
	if found.HasErrors() {
		return nil, found
	}
	return d, found
}

// addRanges sets the ranges of descriptors that name a list. parsed has the lists read so far.
func (r sources) addRanges(all []rules.Descriptor, parsed map[string][]rules.Range, found *rules.Diagnostics) {
	for i := range all {
		d := &all[i]
		r.addRanges(d.Descriptors, parsed, found)
		if d.Set == nil || d.Set.File == "" {
			continue
		}
		path := listPath(d.Set.FilePos.File, d.Set.File)
		ranges, known := parsed[path]
		if !known {
			err := errors.New("the file was not read")
			if at := slices.IndexFunc(r.lists, func(l rangeList) bool { return l.Name == path }); at >= 0 {
				var ds rules.Diagnostics
				if err = r.lists[at].err; err == nil {
					ranges, ds = rules.ParseRangeList(path, r.lists[at].Content)
					*found = append(*found, ds...)
					r.lists[at].Content = nil // so that it can be freed
				}
			}
			if err != nil {
				*found = append(*found, rules.Diagnostic{Pos: d.Set.FilePos, Severity: rules.Error, Message: fmt.Sprintf(
					"failed to read the ranges: %v; create the file with one range on each line", err)})
			}
			parsed[path] = ranges
		}
		d.Set.Ranges = ranges
	}
}
