package ruleset

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/descriptors/volumetest"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestSwapsUnderLoad replaces a volume with rules and their table, as the kubelet does, while
// clients send requests that both versions admit. The rules of one version with the rows of the
// other version would deny every request.
func TestSwapsUnderLoad(t *testing.T) {
	const swaps, otherRules, clients = 20, 1000, 2
	l := newTestLoader(t)
	dir := t.TempDir()
	mount := func(version int) {
		key := []string{"customer", "client"}[version%2]
		var b strings.Builder
		fmt.Fprintf(&b, "domain: d\ndescriptors:\n- {key: %s, rate_limit: {unit: hour, requests_per_unit: 0, table: a}}\n", key)
		for i := range otherRules { // compiling them takes longer than reading the table
			fmt.Fprintf(&b, "- {key: other, value: v%d, rate_limit: {unit: hour, requests_per_unit: %d}}\n", i, version+1)
		}
		if err := volumetest.Update(dir, map[string]string{"rules.yaml": b.String(), "a.csv": key + ",unlimited\nal,true\n"}); err != nil {
			t.Error(err)
		}
	}
	mount(0)
	loaded := make(chan struct{}, 1)
	e, _ := l.tables.Table("a")
	group := source.NewGroup(
		source.NewFiles(source.Options{Paths: []string{filepath.Join(dir, "rules.yaml")}, Options: l.options(), Settle: time.Millisecond}),
		[]*source.TableFile{source.NewTableFile(source.TableOptions{Table: e.Table, Path: filepath.Join(dir, "a.csv")})},
		func(c source.Change) error {
			err := l.Load(c)
			if c.Rules == nil || c.Rules.Err != nil || err != nil {
				t.Errorf("rules and rows are not loaded together: %+v, %v", c, err)
			}
			loaded <- struct{}{}
			return err
		})
	must.OK(t, group.Load(t.Context()))
	<-loaded
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { group.Run(ctx) })
	request := requestWith(t, "customer", "client")
	var answered, denied atomic.Int64
	for range clients {
		running.Go(func() {
			for x := new(answer.Exchange); ctx.Err() == nil; answered.Add(1) {
				if _, _, err := l.service.Answer(limiter.Time(time.Hour), time.Minute, x, request); err != nil {
					t.Error(err)
				}
				if x.OverLimit() {
					denied.Add(1)
				}
				runtime.Gosched()
			}
		})
	}
	for i := range swaps {
		mount(i + 1)
		<-loaded
	}
	cancel()
	running.Wait()
	if n := denied.Load(); n > 0 {
		t.Errorf("%d of %d requests are denied, although both versions admit them", n, answered.Load())
	}
}

// requestWith returns a request with a descriptor for each key, with the value al.
func requestWith(t *testing.T, keys ...string) []byte {
	t.Helper()
	request := &rls.RateLimitRequest{Domain: "d"}
	for _, key := range keys {
		request.Descriptors = append(request.Descriptors, &rlcommon.RateLimitDescriptor{
			Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: key, Value: "al"}},
		})
	}
	b, err := proto.Marshal(request)
	must.OK(t, err)
	return b
}
