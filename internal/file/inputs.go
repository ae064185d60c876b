package file

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
)

// input is a file that this process has read.
type input struct {
	name string
	info fs.FileInfo
}

var inputs struct {
	sync.Mutex
	all []input // nil if inputs are not recorded
}

// RecordInputs makes [AddInput] record files, and forgets those of an earlier command, which may have
// been deleted since. Commands that write a file call it before they read any.
func RecordInputs() {
	inputs.Lock()
	defer inputs.Unlock()
	inputs.all = []input{}
}

// AddInput records an open file as an input of this process. Every function that opens a file for
// reading must call it.
func AddInput(name string, info fs.FileInfo) {
	inputs.Lock()
	defer inputs.Unlock()
	if inputs.all != nil {
		inputs.all = append(inputs.all, input{name, info})
	}
}

// InputAt returns the name of the input that is the file at path, by any link, or "" if there is
// none.
func InputAt(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "" // writing the file will fail, or create it
	}
	inputs.Lock()
	defer inputs.Unlock()
	for _, i := range inputs.all {
		if os.SameFile(info, i.info) {
			return i.name
		}
	}
	return ""
}

// Open opens a file for reading and records it as an input.
func Open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	AddInput(path, info)
	return f, nil
}

// Read reads a file and records it as an input.
func Read(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}
