package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/backend"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// stage is the set of running programs and their files.
type stage struct {
	dir     string
	rules   string // the copy that sluice watches
	backend *backend.Backend
	sluice  *sluice.Sluice
	envoy   *envoy.Envoy
	client  *http.Client
}

// startStage starts all programs. On an error it stops those already started.
func startStage(ctx context.Context, o options) (_ *stage, err error) {
	dir, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return nil, err
	}
	s := &stage{
		dir:    dir,
		rules:  filepath.Join(dir, "config", "rules.yaml"),
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	envoyBinary, err := envoy.Find(o.root)
	if err != nil {
		return nil, err
	}
	bootstrap, err := os.ReadFile(filepath.Join(o.root, "envoy.yaml"))
	if err != nil {
		return nil, err
	}
	if err := s.copyRules(filepath.Join(o.root, o.rules)); err != nil {
		return nil, err
	}
	binary, err := sluice.Build(ctx, o.root, dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if s.backend, err = backend.Start(ctx); err != nil {
		return nil, err
	}
	s.sluice, err = sluice.Start(ctx, sluice.Options{
		Binary: binary,
		Args:   []string{"--config", filepath.Dir(s.rules)},
	})
	if err != nil {
		return nil, err
	}
	s.envoy, err = envoy.Start(ctx, envoy.Options{
		Binary:    envoyBinary,
		Bootstrap: bootstrap,
		Clusters: map[string][]string{
			"sluice":  {s.sluice.Addr("grpc")},
			"backend": {s.backend.Addr},
		},
		Dir:     dir,
		Patient: true,
	})
	return s, err
}

func (s *stage) copyRules(from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Dir(s.rules), 0o700); err != nil {
		return err
	}
	return os.WriteFile(s.rules, text, 0o600)
}

// stop stops the programs in the order of a real shutdown, Envoy first, and removes the files. It
// returns an error if sluice exits with another code than 0. A second call does nothing.
func (s *stage) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.client.CloseIdleConnections()
	var errs []error
	if s.envoy != nil {
		_, err := s.envoy.Stop(ctx)
		errs = append(errs, err)
		s.envoy = nil
	}
	if s.sluice != nil {
		code, err := s.sluice.Stop(ctx)
		if err == nil && code != 0 {
			err = fmt.Errorf("sluice exited with %d, want 0; its log:\n%s", code, s.sluice.Log())
		}
		errs = append(errs, err)
		s.sluice = nil
	}
	if s.backend != nil {
		errs = append(errs, s.backend.Close())
		s.backend = nil
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

func (s *stage) url() string { return "http://" + s.envoy.Addr("ingress") }

func (s *stage) send(ctx context.Context, url string, r request) (answer *http.Response, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, r.method, url+r.path, http.NoBody)
	if err != nil {
		return nil, "", err
	}
	if r.user != "" {
		req.Header.Set("X-User", r.user)
	}
	answer, err = s.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer, string(text), err
}

// metrics returns the samples of the named metric whose label text contains labels.
func (s *stage) metrics(ctx context.Context, name, labels string) ([]string, error) {
	_, body, err := s.send(ctx, "http://"+s.sluice.Addr("metrics"), request{path: "/metrics"})
	if err != nil {
		return nil, err
	}
	var samples []string
	for line := range strings.Lines(body) {
		rest, found := strings.CutPrefix(line, name)
		if found && (rest[0] == '{' || rest[0] == ' ') && strings.Contains(rest, labels) {
			samples = append(samples, strings.TrimSuffix(line, "\n"))
		}
	}
	return samples, nil
}

// showMetric prints the only sample of a metric and compares its value with want.
func (s *stage) showMetric(ctx context.Context, t *transcript, name, labels, want string) error {
	samples, err := s.metrics(ctx, name, labels)
	if err != nil {
		return err
	}
	t.command("curl -s http://" + s.sluice.Addr("metrics") + "/metrics | grep shadow_mode")
	for _, sample := range samples {
		fmt.Fprintf(t.out, "   %s\n", sample)
	}
	if len(samples) != 1 || !strings.HasSuffix(samples[0], "} "+want) {
		return fmt.Errorf("metric %s with %s is %q, want one of value %s", name, labels, samples, want)
	}
	return nil
}

// changeRules edits the rules file as an editor does, by renaming a new file over it. It returns
// when sluice has loaded the new rules.
func (s *stage) changeRules(ctx context.Context, from, to string) error {
	text, err := os.ReadFile(s.rules)
	if err != nil {
		return err
	}
	changed := strings.Replace(string(text), from, to, 1)
	if changed == string(text) {
		return fmt.Errorf("the rules do not contain %q", from)
	}
	const loads = "ratelimit_service_config_load_success"
	before, err := s.metrics(ctx, loads, "")
	if err != nil {
		return err
	}
	next := filepath.Join(s.dir, "rules.yaml.new")
	if err := os.WriteFile(next, []byte(changed), 0o600); err != nil {
		return err
	}
	if err := os.Rename(next, s.rules); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for sluice to load the changed rules: %w; its log:\n%s", ctx.Err(), s.sluice.Log())
		}
		now, err := s.metrics(ctx, loads, "")
		if err != nil {
			return err
		}
		if len(now) == 1 && len(before) == 1 && now[0] != before[0] {
			return nil
		}
	}
}

// keepRunning prints commands to try and waits until ctx is cancelled.
func (s *stage) keepRunning(ctx context.Context, t *transcript) error {
	t.closing("All answers were the expected ones. Everything runs until Ctrl-C. Try in another terminal:")
	for _, try := range []struct{ purpose, command string }{
		{"Send requests as a user of your own:", request{user: "you", path: "/"}.curl(s.url())},
		{"Exceed the limit of a nested rule:", request{method: http.MethodPost, path: "/search"}.curl(s.url())},
		{"Change a limit; it applies within seconds:", "$EDITOR " + s.rules},
		{"See the active rules:", "curl -s http://" + s.sluice.Addr("debug") + "/rlconfig"},
		{"See the metrics of sluice:", "curl -s http://" + s.sluice.Addr("metrics") + "/metrics"},
		{"See Envoy's view of its calls:", "curl -s http://" + s.envoy.Admin + "/stats?filter=ratelimit"},
	} {
		t.note("%s", try.purpose)
		t.command(try.command)
	}
	<-ctx.Done()
	t.closing("Stopping.")
	return nil
}
