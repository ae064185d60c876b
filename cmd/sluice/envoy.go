package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

// checkStdinOnce returns an error if paths name standard input twice, because it can be read only
// once.
func checkStdinOnce(paths ...[]string) error {
	n := 0
	for _, path := range slices.Concat(paths...) {
		if path == "-" {
			n++
		}
	}
	if n > 1 {
		return errors.New("standard input (-) is named twice but can be read only once; save it to a file first")
	}
	return nil
}

// maxEnvoyBytes bounds the size of a file of Envoy's configuration.
const maxEnvoyBytes = 1 << 30

// readEnvoy reads Envoy's configuration from files; - is standard input.
func readEnvoy(c console, paths []string) (*envoyconfig.Config, error) {
	files := make([]envoyconfig.File, len(paths))
	infos := make([]os.FileInfo, len(paths))
	for i, path := range paths {
		content, err := readFileOrStdin(c, path)
		if err != nil {
			return nil, err
		}
		if path != "-" {
			info, err := os.Stat(path)
			if err != nil {
				return nil, err
			}
			for j, other := range infos {
				if os.SameFile(info, other) {
					return nil, fmt.Errorf("%s and %s are the same file: pass it once", paths[j], path)
				}
			}
			infos[i] = info
		}
		files[i] = envoyconfig.File{Name: path, Content: content}
		if path == "-" {
			files[i].Name = "stdin"
		}
	}
	return envoyconfig.Read(files)
}

func readFileOrStdin(c console, path string) ([]byte, error) {
	in := c.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return nil, fmt.Errorf("%s is a directory: name the files in it", path)
		}
		in = f
	}
	content, err := io.ReadAll(io.LimitReader(in, maxEnvoyBytes+1))
	if err != nil {
		return nil, err // the error names the file
	}
	if len(content) > maxEnvoyBytes {
		return nil, errors.New(path + " is larger than 1 GiB")
	}
	return content, nil
}
