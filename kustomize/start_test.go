package kustomize

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// memo caches results that many combinations share.
type memo struct{ results sync.Map }

// do calls f once for each key, and returns its result.
func (m *memo) do(key string, f func() error) error {
	once, _ := m.results.LoadOrStore(key, sync.OnceValue(f))
	return once.(func() error)()
}

// starts are the results of running the program, by all inputs.
var starts memo

// checkStart starts the program with the arguments, the environment and the mounts of a container, and sends the
// kubelet's requests.
func (o *objects) checkStart(in *instance) {
	if _, given := in.flags["start-without-rules"]; in.flags["xds-addr"] != "" && !given {
		return // it would wait for rules until it is killed
	}
	run := []any{in.container, in.pod.Volumes}
	for _, one := range o.all {
		if config, ok := one.(*corev1.ConfigMap); ok {
			run = append(run, config)
		}
	}
	key, err := json.Marshal(run)
	if err == nil {
		err = starts.do(string(key), func() error { return o.start(in) })
	}
	if err != nil {
		o.addProblem("%s: %v", in.of, err)
	}
}

func (o *objects) start(in *instance) error {
	dir, err := os.MkdirTemp(scratch, "")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // TestMain removes scratch
	options, err := o.options(in, dir)
	if err != nil {
		return err
	}
	return o.startAndProbe(in, dir, options)
}

// options writes the mounts of a container to dir, and returns the options to start it there.
func (o *objects) options(in *instance, dir string) (sluice.Options, error) {
	options := sluice.Options{Addrs: map[string]string{}}
	mounts, err := o.mountVolumes(dir, in.container, in.pod)
	if err != nil {
		return options, err
	}
	for name, addr := range in.addrs {
		switch {
		case strings.HasPrefix(addr, "unix:"):
			socket, err := hostArg("="+addr, dir, mounts)
			if err != nil {
				return options, err
			}
			options.Addrs[name] = socket[1:]
		case addr == "":
			options.Addrs[name] = ""
		} // otherwise on a free port of this machine
	}
	for _, arg := range in.container.Args[1:] {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		listener, isAddr := strings.CutSuffix(name, "-addr")
		if _, moves := in.addrs[listener]; isAddr && moves {
			continue
		}
		if name == "log-format" {
			if value != "json" {
				return options, fmt.Errorf("%s: want json, which log stores read", arg)
			}
			continue // Start returns the same error
		}
		if arg, err = hostArg(arg, dir, mounts); err != nil {
			return options, err
		}
		options.Args = append(options.Args, arg)
	}
	for _, v := range in.container.Env {
		options.Env = append(options.Env, v.Name+"="+v.Value)
	}
	options.Binary = binary
	return options, nil
}

// startAndProbe starts the program and sends each probe.
func (o *objects) startAndProbe(in *instance, dir string, options sluice.Options) error {
	for _, arg := range options.Args {
		if rules, isConfig := strings.CutPrefix(arg, "--config="); isConfig {
			if _, err := command(options.Binary, "check", "--strict", rules); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := sluice.Start(ctx, options)
	if err != nil {
		return err
	}
	defer s.Kill()
	var failed []error
	for name, probe := range map[string]*corev1.Probe{
		"startup": in.container.StartupProbe, "readiness": in.container.ReadinessProbe, "liveness": in.container.LivenessProbe,
	} {
		if probe == nil {
			if name != "readiness" || !in.sidecar {
				failed = append(failed, fmt.Errorf("there is no %s probe", name))
			}
			continue
		}
		if err := retryUnhealthy(ctx, func() error { return in.sendProbe(ctx, s, probe) }); err != nil {
			failed = append(failed, fmt.Errorf("%s probe: %w", name, err))
		}
	}
	failed = append(failed, retryUnhealthy(ctx, func() error { return in.checkHealth(ctx, s, dir) }), get(ctx, s.Addr("metrics"), "/metrics"))
	failed = append(failed, in.checkJSON(ctx, s))
	return errors.Join(failed...)
}

// checkJSON checks that /json is disabled if it would bypass the authentication of the rate-limit service.
func (in *instance) checkJSON(ctx context.Context, s *sluice.Sluice) error {
	_, guarded := in.flags["grpc-client-ca"]
	if !guarded && in.externalPort("grpc") != 0 {
		return nil
	}
	if err := get(ctx, s.Addr("http"), "/json"); err == nil || !strings.Contains(err.Error(), "403") {
		return fmt.Errorf("/json on a port: %w, want 403", err)
	}
	return nil
}

// errUnhealthy means that the program runs but does not serve yet.
var errUnhealthy = errors.New("not healthy")

// retryUnhealthy calls check again while it returns errUnhealthy, like the kubelet.
func retryUnhealthy(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if !errors.Is(err, errUnhealthy) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// sendProbe sends a probe like the kubelet, which is outside of the pod.
func (in *instance) sendProbe(ctx context.Context, s *sluice.Sluice, probe *corev1.Probe) error {
	switch {
	case probe.GRPC != nil:
		listener := in.listenerAt(probe.GRPC.Port)
		if listener == "" {
			return fmt.Errorf("no listener has the pod's port %d", probe.GRPC.Port)
		}
		service := ""
		if probe.GRPC.Service != nil {
			service = *probe.GRPC.Service
		}
		return check(ctx, s.Addr(listener), service, insecure.NewCredentials())
	case probe.HTTPGet != nil:
		port := probe.HTTPGet.Port.IntVal
		if probe.HTTPGet.Port.Type == intstr.String {
			named := find(in.container.Ports, func(p *corev1.ContainerPort) bool { return p.Name == probe.HTTPGet.Port.StrVal })
			if named == nil {
				return fmt.Errorf("there is no port %s", probe.HTTPGet.Port.StrVal)
			}
			port = named.ContainerPort
		}
		listener := in.listenerAt(port)
		if listener == "" {
			return fmt.Errorf("no listener has the pod's port %d", port)
		}
		return get(ctx, s.Addr(listener), probe.HTTPGet.Path)
	}
	return errors.New("want gRPC or HTTP")
}

// checkHealth calls the health service like Envoy, over TLS if that is enabled.
func (in *instance) checkHealth(ctx context.Context, s *sluice.Sluice, dir string) error {
	addr := s.Addr("grpc")
	if strings.HasPrefix(addr, "/") {
		addr = "unix://" + addr
	}
	cert, isTLS := in.flags["grpc-tls-cert"]
	if !isTLS {
		return check(ctx, addr, "", insecure.NewCredentials())
	}
	mounted := below(dir, filepath.Dir(cert))
	pair, err := tls.LoadX509KeyPair(filepath.Join(mounted, "tls.crt"), filepath.Join(mounted, "tls.key"))
	if err != nil {
		return err
	}
	authorities, err := os.ReadFile(filepath.Join(mounted, "ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)
	config := &tls.Config{RootCAs: pool, ServerName: "sluice", MinVersion: tls.VersionTLS12}
	without := check(ctx, addr, "", credentials.NewTLS(config.Clone()))
	config.Certificates = []tls.Certificate{pair}
	if without == nil {
		return errors.New("it serves clients without a certificate")
	}
	if err := check(ctx, addr, "", credentials.NewTLS(config)); err != nil {
		return err
	}
	_, err = command(binary, "call", "--addr", addr, "--domain", "sluice", "--descriptor", "user=alice", "--server-name", "sluice", "--timeout", patience.String(),
		"--ca-cert", filepath.Join(mounted, "ca.crt"), "--cert", filepath.Join(mounted, "tls.crt"), "--key", filepath.Join(mounted, "tls.key"))
	return err
}

func check(ctx context.Context, addr, service string, c credentials.TransportCredentials) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(c))
	if err != nil {
		return err
	}
	answer, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: service})
	if err == nil && answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		err = fmt.Errorf("health of %q is %s: %w", service, answer.GetStatus(), errUnhealthy)
	}
	return errors.Join(err, conn.Close())
}

func get(ctx context.Context, addr, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusInternalServerError:
		err = fmt.Errorf("GET %s: %w", path, errUnhealthy)
	default:
		err = fmt.Errorf("GET %s returned %s", path, response.Status)
	}
	return errors.Join(err, response.Body.Close())
}
