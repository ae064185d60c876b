//go:build torture

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// childVariable makes this program an attacker or a stock server. Attackers must not share a
// scheduler and memory with the callers, whose latency is measured.
const childVariable = "SLUICE_TORTURE_CHILD"

// child is the configuration of a child process: an attacker or a stock server.
type child struct {
	// Attack is the name of an attack. If empty, the child is a stock server.
	Attack      string
	Target      hostile.Target
	Connections int
	For         time.Duration
}

// serveAsChild runs the child and exits if this process is a child.
func serveAsChild() {
	text := os.Getenv(childVariable)
	if text == "" {
		return
	}
	var c child
	err := json.Unmarshal([]byte(text), &c)
	switch {
	case err != nil:
	case c.Attack == "":
		err = serveStock()
	default:
		err = c.attack()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// attack runs the attack and prints its outcome as a line of JSON.
func (c child) attack() error {
	attack, err := hostile.Find(c.Attack, c.Target)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.For)
	defer cancel()
	outcome, err := attack.Run(ctx, c.Target, c.Connections)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(outcome)
}

// start starts a child with the given niceness.
func (c child) start(t *testing.T, nice int) *process.Process {
	t.Helper()
	text, err := json.Marshal(c)
	must.OK(t, err)
	cmd := exec.Command("nice", "-n", strconv.Itoa(nice), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	p, err := process.Start(cmd)
	must.OK(t, err)
	t.Cleanup(p.Kill)
	return p
}

// outcome waits for the end of an attack and returns its outcome.
func outcome(t *testing.T, p *process.Process) (o hostile.Outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if code, err := p.Wait(ctx); code != 0 || err != nil {
		t.Fatalf("the attacker exited with %d, %v:\n%s", code, err, p.Log())
	}
	if err := json.Unmarshal([]byte(p.Log()), &o); err != nil {
		t.Fatalf("read the outcome %q: %v", p.Log(), err)
	}
	return o
}

// stock is a grpc-go service without options that answers OK to every call.
type stock struct {
	rls.UnimplementedRateLimitServiceServer
}

func (stock) ShouldRateLimit(_ context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	statuses := make([]*rls.RateLimitResponse_DescriptorStatus, len(request.GetDescriptors()))
	for i := range statuses {
		statuses[i] = &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
	}
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK, Statuses: statuses}, nil
}

const stockListens = "listening on "

func serveStock() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(server, stock{})
	reflection.Register(server)
	fmt.Fprintln(os.Stdout, stockListens+l.Addr().String())
	return server.Serve(l)
}

// startStock starts a stock server and returns its address.
func startStock(t *testing.T) (p *process.Process, addr string) {
	t.Helper()
	p = child{}.start(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if err := p.WaitLine(ctx, func(line string) (found bool) {
		addr, found = strings.CutPrefix(line, stockListens)
		return found
	}); err != nil {
		t.Fatal(err)
	}
	return p, addr
}
