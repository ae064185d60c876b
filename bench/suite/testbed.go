package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// builder builds commands and test binaries into dir.
type builder struct {
	dir      string
	root     string // of the main module
	progress io.Writer
}

func (b *builder) findRoot(ctx context.Context) error {
	out, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}")
	if err != nil {
		return err
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(out), " ")
	if path != "github.com/sluice-ratelimit/sluice/bench" {
		return fmt.Errorf("the current module is %s: run this in the directory bench", path)
	}
	b.root = filepath.Dir(dir)
	return nil
}

// build runs go with args and an output file. It returns the file's path.
func (b *builder) build(ctx context.Context, module, name string, args ...string) (string, error) {
	fmt.Fprintln(b.progress, "building", name)
	path := filepath.Join(b.dir, name)
	last := len(args) - 1
	args = append(slices.Clone(args[:last]), "-o", path, args[last])
	_, err := output(ctx, filepath.Join(b.root, module), "go", args...)
	return path, err
}

// testbed contains all programs and the services that run them.
type testbed struct {
	*builder

	sluice, envoy, store, taskset string // paths
	upstream                      string // its address, once it runs
	services                      map[string]*service
	missing                       []string // programs that are not measured, with the reasons
}

// newTestbed builds the programs of this repository and finds the external ones.
func newTestbed(ctx context.Context, b *builder) (*testbed, error) {
	fmt.Fprintln(b.progress, "building sluice")
	w := &testbed{builder: b, services: map[string]*service{}}
	var err error
	if w.sluice, err = sluice.Build(ctx, b.root, b.dir); err != nil {
		return nil, err
	}
	if err := os.CopyFS(b.dir, rules); err != nil {
		return nil, err
	}
	w.add(w.sluiceService(sluiceBuiltin))
	w.add(w.sluiceService(sluiceGRPC, "--grpc-transport", "grpc-go"))
	for name, folder := range map[string]string{noop: "noop", floor: "floor"} {
		path, err := b.build(ctx, "bench", folder, "build", "-buildvcs=false", "./"+folder)
		if err != nil {
			return nil, err
		}
		w.add(noopService(name, path))
	}
	if err := w.addLimits(); err != nil {
		return nil, err
	}
	return w, w.findExternal()
}

// findExternal finds the programs that are not built here.
func (w *testbed) findExternal() (err error) {
	if w.taskset, err = exec.LookPath("taskset"); err != nil {
		return err
	}
	w.envoy, err = envoy.Find(w.root)
	if errors.Is(err, envoy.ErrNotInstalled) {
		w.missing = append(w.missing, "Envoy: "+err.Error())
	} else if err != nil {
		return err
	}
	if w.store, err = w.find("the store", "VALKEY_BIN"); err != nil {
		return err
	}
	for _, p := range peers {
		path, err := w.find(p.name, p.variable)
		if err != nil {
			return err
		}
		if path != "" {
			w.add(w.peer(&p, path))
		}
	}
	if w.store == "" {
		delete(w.services, ratelimit)
		return nil
	}
	shared := w.sluiceService(sluiceStore)
	shared.store = true
	w.add(shared)
	blocks := w.sluiceService(sluiceBlocks, "--store-blocks", "auto")
	blocks.store = true
	w.add(blocks)
	return nil
}

func (w *testbed) add(s *service) { w.services[s.name] = s }

// find returns the path in a variable, or records in missing that the program is not measured.
func (w *testbed) find(what, variable string) (string, error) {
	name := os.Getenv(variable)
	if name == "" {
		w.missing = append(w.missing, fmt.Sprintf("%s: %s is not set", what, variable))
		return "", nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", variable, err)
	}
	return filepath.Abs(path)
}
