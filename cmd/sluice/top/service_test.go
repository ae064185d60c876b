package top

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/client"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestNameOfSeveralReplicas verifies that a DNS name stands for a replica at each of its addresses,
// and that addresses of another family are not counted twice.
func TestNameOfSeveralReplicas(t *testing.T) {
	first, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.OK(t, err)
	_, port, err := net.SplitHostPort(first.Addr().String())
	must.OK(t, err)
	second, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.2:"+port)
	if err != nil {
		storetest.NotRun(t, t.Name()+": this machine has only one loopback address: "+err.Error())
	}
	for _, l := range []net.Listener{first, second} {
		debug := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(newState())
		}))
		must.OK(t, debug.Listener.Close())
		debug.Listener = l
		debug.Start()
		t.Cleanup(debug.Close)
	}
	names := map[string][]string{
		"ip4 both.test": {"127.0.0.2", "127.0.0.1", "127.0.0.2"}, "ip6 both.test": {"::1"},
		"ip4 one.test": {"127.0.0.1"}, "ip6 six.test": {"::1", "::2"},
	}
	var dialled []string
	s := &Service{
		Lookup: func(_ context.Context, network, host string) (ips []netip.Addr, err error) {
			for _, ip := range names[network+" "+host] {
				ips = append(ips, netip.MustParseAddr(ip))
			}
			if ips == nil {
				return nil, errors.New("no such host")
			}
			return ips, nil
		},
		Dial: func(addr, name string) (*client.Debug, error) {
			dialled = append(dialled, strings.TrimSpace(addr+" "+name))
			return &client.Debug{Addr: addr}, nil
		},
	}
	for addr, want := range map[string][]string{
		"both.test:" + port: {"127.0.0.1:" + port + " both.test", "127.0.0.2:" + port + " both.test"},
		"one.test:1":        {"one.test:1"}, "none.test:1": {"none.test:1"}, "localhost:1": {"localhost:1"}, "unix:///a:1": {"unix:///a:1"}, "[::1]:1": {"[::1]:1"},
		"six.test:1": {"[::1]:1 six.test", "[::2]:1 six.test"},
	} {
		dialled = nil
		if _, err := s.dial(t.Context(), addr); err != nil || !slices.Equal(dialled, want) {
			t.Errorf("%s: dialled %q, %v, want %q", addr, dialled, err, want)
		}
	}
	s.Addrs = []string{"both.test:" + port}
	got, err := s.Fetch(t.Context())
	must.OK(t, err)
	if got.Sum.Host != "2 replicas" || got.Sum.Domains[0].Rules[0].Hits != 40 || len(got.Replicas) != 2 {
		t.Errorf("the sum is %+v", got.Sum)
	}
}

// TestMissingReplica verifies that the state and its condition name the replica that does not
// respond.
func TestMissingReplica(t *testing.T) {
	debug := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(newState())
	}))
	t.Cleanup(debug.Close)
	s := &Service{Addrs: []string{strings.TrimPrefix(debug.URL, "http://"), "127.0.0.1:1"}, Dial: func(addr, _ string) (*client.Debug, error) {
		return &client.Debug{Addr: addr}, nil
	}}
	got, err := s.Fetch(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "query 127.0.0.1:1: ") {
		t.Errorf("the error is %v", err)
	}
	if first := got.Sum.Conditions[0]; len(got.Replicas) != 1 || first.Replica != "127.0.0.1:1" || strings.Contains(first.Text, "query") {
		t.Errorf("%d replicas respond, the first condition is %+v", len(got.Replicas), got.Sum.Conditions[0])
	}
}
