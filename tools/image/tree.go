package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// tree contains the files of a layer by their path in the image, without a leading slash.
// Directories are implied. All files belong to root and are readable by every user, because the
// image may run as any user.
type tree map[string]file

// file is a file or a hard link.
type file struct {
	content    []byte
	executable bool
	// linkTo, if not empty, is the path of the file to link to. The target must be in the same tree
	// and sort before this path, because it must exist before the link.
	linkTo string
}

func (f file) mode() int64 {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// sortedPaths returns the paths in the order in which they are written.
func (t tree) sortedPaths() []string { return slices.Sorted(maps.Keys(t)) }

// size returns the total size of the files in bytes, without links.
func (t tree) size() (bytes int64) {
	for _, f := range t {
		bytes += int64(len(f.content))
	}
	return bytes
}

// epoch is the modification time of every file. The time of the build would change the layers of
// each build.
var epoch = time.Unix(0, 0).UTC()

// writeTar writes the files as the tar of a layer.
func (t tree) writeTar(to io.Writer) error {
	w := tar.NewWriter(to)
	made := make(map[string]bool)
	for _, p := range t.sortedPaths() {
		for i, c := range p {
			if dir := p[:i] + "/"; c == '/' && !made[dir] {
				made[dir] = true
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: epoch}); err != nil {
					return err
				}
			}
		}
		f := t[p]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: p, Mode: f.mode(), Size: int64(len(f.content)), ModTime: epoch}
		if f.linkTo != "" {
			header.Typeflag = tar.TypeLink
			header.Linkname = f.linkTo
		}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("write %s: %w", p, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return fmt.Errorf("write %s: %w", p, err)
		}
	}
	return w.Close()
}

// layer returns the files as a layer.
func (t tree) layer() (v1.Layer, error) {
	var b bytes.Buffer
	if err := t.writeTar(&b); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching,
	)
}

// writeTo writes the files below the directory root.
func (t tree) writeTo(root string) error {
	for _, p := range t.sortedPaths() {
		f := t[p]
		full := filepath.Join(root, filepath.FromSlash(p))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if f.linkTo != "" {
			if err := os.Link(filepath.Join(root, filepath.FromSlash(f.linkTo)), full); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(full, f.content, os.FileMode(f.mode())); err != nil {
			return err
		}
		if err := os.Chmod(full, os.FileMode(f.mode())); err != nil { // regardless of the umask
			return err
		}
		if err := os.Chtimes(full, epoch, epoch); err != nil {
			return err
		}
	}
	return nil
}

// below returns the files in a directory with the given name.
func (t tree) below(name string) tree {
	moved := make(tree, len(t))
	for p, f := range t {
		moved[name+"/"+p] = f
	}
	return moved
}

// writeArchive writes the files as .tar.gz, and prints the path.
func (t tree) writeArchive(path string, out io.Writer) error {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if err := errors.Join(t.writeTar(w), w.Close()); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	fmt.Fprintf(out, "release: %s\n", path)
	return writeAtomically(path, func(to string) error { return os.WriteFile(to, b.Bytes(), 0o644) })
}

// writeAtomically calls write with a temporary path, which then replaces path. So path never
// contains an incomplete file or directory.
func writeAtomically(path string, write func(to string) error) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	temporary := filepath.Join(dir, "new")
	if err := write(temporary); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
