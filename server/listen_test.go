package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestTakenPort holds that a taken port ends the start, unless its listener is optional.
func TestTakenPort(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()

	s := service(t, Settings{}, oneRule)
	r := serve(t, s, Options{HTTPAddr: addr, MetricsAddr: addr, Optional: map[string]string{"http": "--a", "metrics": "--b"}})
	checkOK(t, r.dial(t))
	if r.addr["http"] != "" || r.addr["metrics"] != "" || r.addr["debug"] == "" {
		t.Errorf("listeners %v, want grpc and debug", r.addr)
	}
	left := map[any]any{}
	for _, e := range r.logs.FilterMessage("a listener is left out: another process has its port").All() {
		left[e.ContextMap()["listener"]] = e.ContextMap()["moved_by"]
	}
	if len(left) != 2 || left["http"] != "--a" || left["metrics"] != "--b" {
		t.Errorf("warned of %v, want http and metrics", left)
	}

	for name, options := range map[string]Options{
		"http": {HTTPAddr: addr, Optional: map[string]string{"metrics": "--b"}},
		"grpc": {GRPCAddr: addr, Optional: map[string]string{"grpc": "--c"}},
		// Only a taken port is excused; this machine has no such address.
		"metrics": {MetricsAddr: "192.0.2.1:0", Optional: map[string]string{"metrics": "--b"}},
	} {
		s := service(t, Settings{}, oneRule)
		err := New(options, s, s.metrics, r.logger).Listen(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), name+" listener: ") {
			t.Errorf("Listen() = %v, want an error of the %s listener", err, name)
		}
	}
}

// TestReusePort holds that two servers listen on the same ports, if both are told to.
func TestReusePort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SO_REUSEPORT")
	}
	old := serve(t, service(t, Settings{}, oneRule), Options{ReusePort: true})
	same := Options{GRPCAddr: old.addr["grpc"], HTTPAddr: old.addr["http"], DebugAddr: old.addr["debug"], MetricsAddr: old.addr["metrics"]}

	s := service(t, Settings{}, oneRule)
	if err := New(same, s, s.metrics, old.logger).Listen(t.Context()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Listen() = %v without ReusePort, want that the address is in use", err)
	}
	same.ReusePort = true
	young := serve(t, service(t, Settings{}, oneRule), same)
	old.stop()
	if err := <-old.done; err != nil {
		t.Fatal(err)
	}
	old.done <- nil // for the end of the test
	checkOK(t, young.dial(t))
	response, err := http.Get("http://" + old.addr["http"] + "/healthcheck")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "OK" {
		t.Errorf("/healthcheck = %q, %v, want OK", body, err)
	}
}
