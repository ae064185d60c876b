//go:build torture

package torture

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// labors are what clients can make sluice do besides answering calls. Each runs once over one
// connection, again and again.
var labors = map[string]struct {
	listener    string
	connections int
	run         func(ctx context.Context, addr string) error
}{
	"handshakes that never go on": {"grpc", 64, sendClientHello},
	"json with 1000 descriptors":  {"http", 8, postDescriptors},
	"metrics of 2000 domains":     {"metrics", 8, getPage("/metrics")},
	"profiles":                    {"debug", 8, getPage("/debug/pprof/heap?debug=1")},
}

// BenchmarkNeighbors measures how much the work for one client delays the calls of another, who has
// an open connection: the 99th percentile with and without the work, of two processes that run at
// the same time. The clients at work have niceness 10. It needs an idle machine.
func BenchmarkNeighbors(b *testing.B) {
	for name, labor := range labors {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			attacked, twin := startNeighbor(b), startNeighbor(b)
			var loads [2]*Load
			for i, s := range []*sluice.Sluice{attacked, twin} {
				loads[i] = StartLoad(b, LoadOptions{Rate: 400, Deadline: time.Minute, Call: neighborCall(b, s.Addr("grpc"))})
				loads[i].Run(b, time.Second)
			}
			for _, l := range loads {
				l.Phase("work")
			}
			attacker := child{Labor: name, Addr: attacked.Addr(labor.listener), For: 5 * time.Second}.start(b, 10)
			code, err := attacker.Wait(b.Context())
			must.OK(b, err)
			if code != 0 {
				b.Fatalf("the attacker exited with %d:\n%s", code, attacker.Log())
			}
			var p99 [2]float64
			for i, l := range loads {
				l.Phase("after")
				report := l.Stop(b)
				report.NoErrors(b, "before", "work", "after")
				p99[i] = report.Phase(b, "work").quantile(0.99).Seconds() * 1e3
			}
			b.ReportMetric(p99[0], "attacked-p99-ms")
			b.ReportMetric(p99[1], "twin-p99-ms")
			b.ReportMetric(p99[0]/p99[1], "ratio")
			b.Logf("%s", attacker.Log())
		})
	}
}

func startNeighbor(b *testing.B) *sluice.Sluice {
	b.Helper()
	authority, err := testcert.New("neighbors")
	must.OK(b, err)
	pair, err := authority.Issue(testcert.Leaf{Names: []string{"localhost"}})
	must.OK(b, err)
	files, err := testcert.Mount(b.TempDir(), pair, authority.PEM)
	must.OK(b, err)
	var rules strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&rules, "---\ndomain: d%d\ndescriptors:\n- {key: k, rate_limit: {unit: hour, requests_per_unit: 4000000}}\n", i)
	}
	return Start(b, Options{Rules: strings.TrimPrefix(rules.String(), "---\n"), Args: []string{"--grpc-tls-cert", files.Cert, "--grpc-tls-key", files.Key}})
}

// neighborCall returns a function that makes a call over one connection.
func neighborCall(b *testing.B, addr string) CallFunc {
	b.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	must.OK(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	client := rls.NewRateLimitServiceClient(conn)
	return func(ctx context.Context) (string, error) {
		request := Request(Key{"k", "v"})
		request.Domain = "d7"
		reply, err := client.ShouldRateLimit(ctx, request)
		return reply.GetOverallCode().String(), err
	}
}

// work runs a labor until ctx ends and prints how often it ran.
func (c child) work(ctx context.Context) error {
	labor := labors[c.Labor]
	var mu sync.Mutex
	var group sync.WaitGroup
	runs := 0
	var last error
	for range labor.connections {
		group.Go(func() {
			for ctx.Err() == nil {
				err := labor.run(ctx, c.Addr)
				mu.Lock()
				runs++
				last = err
				mu.Unlock()
			}
		})
	}
	group.Wait()
	fmt.Printf("%d times, the last one with %v\n", runs, last)
	return nil
}

// sendClientHello begins a handshake and reads the server's part.
func sendClientHello(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	return tls.Client(helloOnly{Conn: conn, wrote: new(bool)}, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
}

// helloOnly is a connection on which a client writes only once.
type helloOnly struct {
	net.Conn
	wrote *bool
}

func (c helloOnly) Write(p []byte) (int, error) {
	if *c.wrote {
		return 0, io.ErrClosedPipe
	}
	*c.wrote = true
	return c.Conn.Write(p)
}

func getPage(path string) func(ctx context.Context, addr string) error {
	return func(ctx context.Context, addr string) error {
		return fetch(ctx, http.MethodGet, "http://"+addr+path, http.NoBody)
	}
}

func postDescriptors(ctx context.Context, addr string) error {
	var all []any
	for i := range 1000 {
		all = append(all, map[string]any{"entries": []any{map[string]string{"key": "k", "value": strconv.Itoa(i)}}})
	}
	body, err := json.Marshal(map[string]any{"domain": "d1", "descriptors": all})
	if err != nil {
		return err
	}
	return fetch(ctx, http.MethodPost, "http://"+addr+"/json", bytes.NewReader(body))
}

func fetch(ctx context.Context, method, url string, body io.Reader) error {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", response.Status)
	}
	return nil
}
