// Package envoy runs the real Envoy on free ports, so that any number can run concurrently.
package envoy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/e2e/process"
)

// Version is the version that `make envoy` installs.
const Version = "1.40.0"

// ErrNotInstalled is returned by [Find] if no Envoy is installed.
var ErrNotInstalled = errors.New("no Envoy found: run `make envoy`, or set ENVOY_BIN")

// Find returns the path of Envoy: ENVOY_BIN, which must exist if set, or the one that `make envoy`
// installed below root, the repository's root.
func Find(root string) (string, error) {
	path := os.Getenv("ENVOY_BIN")
	if path == "" {
		path = filepath.Join(root, ".build", "envoy-"+Version)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return "", ErrNotInstalled
		}
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("find Envoy: %w", err)
	}
	return filepath.Abs(path)
}

// Validate has Envoy check a configuration file without changes. Envoy opens its output files, so
// it runs in a temporary directory.
func Validate(ctx context.Context, binary, config string) error {
	config, err := filepath.Abs(config)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "envoy-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := exec.CommandContext(ctx, binary, "--mode", "validate", "-c", config)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("validate %s: %w:\n%s", config, err, out)
	}
	return nil
}

// Options configures an Envoy.
type Options struct {
	// Binary is the path of Envoy; see [Find].
	Binary string
	// Bootstrap is the configuration in YAML. The ports of its listeners and admin page are
	// replaced by free ones on 127.0.0.1.
	Bootstrap []byte
	// Clusters replaces all endpoints (host:port, or unix:// and a path) of the named clusters.
	// Optional.
	Clusters map[string][]string
	// Endpoints replaces single endpoints (host:port by host:port). Endpoints that are listeners of
	// the same configuration are replaced automatically. Optional.
	Endpoints map[string]string
	// Patient extends Envoy's timeouts for rate limit calls, health checks, PINGs and requests, so
	// that a busy machine does not change its behaviour. Envoy still notices immediately if a process has
	// ended. The configuration must contain a rate limit filter.
	Patient bool
	// Workers is the number of worker threads. Optional; default 2.
	Workers int
	// Dir is the directory for Envoy's files, removed by the caller.
	Dir string
}

// Envoy is a running Envoy. It is safe for concurrent use. The starter must call Stop or Kill.
type Envoy struct {
	*process.Process

	// Admin is the address of the admin page.
	Admin string

	listeners map[string]string
}

// Start starts Envoy and returns when its listeners serve, which is after the first health checks
// of its clusters. If ctx ends first, it returns an error and leaves no process running.
func Start(ctx context.Context, o Options) (*Envoy, error) {
	config, err := render(o)
	if err != nil {
		return nil, err
	}
	configPath := filepath.Join(o.Dir, "envoy.json")
	if err := os.WriteFile(configPath, config, 0o600); err != nil {
		return nil, err
	}
	if o.Workers == 0 {
		o.Workers = 2
	}
	adminPath := filepath.Join(o.Dir, "envoy-admin-address")
	// Stop ends Envoy, not a context.
	p, err := process.Start(exec.Command(o.Binary,
		"-c", configPath,
		"--admin-address-path", adminPath,
		"--concurrency", strconv.Itoa(o.Workers),
		// Hot restart uses shared memory, in which two Envoys would conflict.
		"--disable-hot-restart",
		"--file-flush-interval-msec", "200", // for tests that wait for access logs
	))
	if err != nil {
		return nil, err
	}
	e := &Envoy{Process: p}
	if err := e.awaitReady(ctx, adminPath); err != nil {
		e.Kill()
		return nil, err
	}
	return e, nil
}

// Addr returns the address of the given listener, or "".
func (e *Envoy) Addr(listener string) string { return e.listeners[listener] }

func (e *Envoy) awaitReady(ctx context.Context, adminPath string) error {
	if err := e.WaitLine(ctx, func(line string) bool {
		return strings.Contains(line, "starting workers")
	}); err != nil {
		return err
	}
	admin, err := os.ReadFile(adminPath)
	if err != nil {
		return fmt.Errorf("read the address of Envoy's admin page: %w", err)
	}
	e.Admin = string(admin)
	e.listeners, err = listenerAddresses(ctx, e.Admin)
	return err
}

// listenerAddresses reads the listeners' addresses from the admin page.
func listenerAddresses(ctx context.Context, admin string) (map[string]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/listeners?format=json", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read Envoy's listeners: %w", err)
	}
	defer resp.Body.Close()
	var answer struct {
		Listeners []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("read Envoy's listeners: %w", err)
	}
	addresses := make(map[string]string)
	for _, l := range answer.Listeners {
		addresses[l.Name] = l.Local.Socket.Address + ":" + strconv.Itoa(l.Local.Socket.Port)
	}
	return addresses, nil
}
