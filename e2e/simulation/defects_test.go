package simulation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// defect is a mistake in the service that the simulation must find. It is planted by replacing old,
// which occurs once in the file, by new.
type defect struct {
	name     string
	what     string
	file     string
	old, new string
	foundBy  string // the test that finds it, "package.Test"; empty for the simulation
}

var defects = []defect{
	{
		"stray lease", "a permit that the store grants after the fallback has decided is not released", "store/unsynced.go",
		"\t\treq.addStrayLeases(now)\n", "", "",
	},
	{
		"reset in the store", "a call that was reset while the store decided it keeps its lease", "server/transport/builtin/call.go",
		"\t\tx.Connection.ResetCall(x.Stream)\n", "", "",
	},
	{
		"call in use", "a call that the store owns is used for the next request of the connection", "server/transport/builtin/call.go",
		"\t\tc.spare = nil\n\t\tx.addToStoreLocked()\n", "\t\tx.addToStoreLocked()\n", "",
	},
	{
		"call released twice", "a call of an ended connection is released, and again when its stream is canceled", "server/transport/builtin/call.go",
		"\tif x.awaited {\n\t\tx.transfer(ownerBatch, ownerStream)\n\t\treturn\n\t}\n\tx.release()", "\tx.release()",
		"server/transport/builtin.TestEndedCallIsReleasedOnce", // in a run no other thread uses the call in between
	},
	{
		"delayed call in use", "a call whose response is due is released when its client resets it, and again by the mailbox", "server/transport/builtin/call.go",
		"\t\tif x.delayTimer.Stop() { // otherwise the call is in the mailbox\n\t\t\tx.transfer(ownerTimer, ownerBatch)\n\t\t\tx.release()\n\t\t}\n", "\t\tx.transfer(ownerTimer, ownerBatch)\n\t\tx.release()\n", "",
	},
	{
		"lease returned twice", "a second return of a lease releases the permit that has its cell now", "limiter/concurrency.go",
		" || ps.cell(i).Load()&nonceMask != lease&nonceMask", "", "",
	},
	{
		"lease returned twice to the store", "a second return of a lease releases another permit", "store/script/counters.lua",
		"    if held then call('ZREM', key, text(lease)) end\n", "    if held then call('ZREM', key, text(lease)) else call('ZREMRANGEBYRANK', key, -1, -1) end\n", "",
	},
	{
		"no tombstone", "a replica's lease that was released in the store is recorded as held later", "store/script/counters.lua",
		"    if by_replica and (held or score == 0) then\n", "    if false then\n", "",
	},
	{
		"no grace", "the leases of a client that has reconnected are revoked", "server/leases/client.go",
		"\tif p.opened != opened {\n\t\treturn nil\n\t}\n", "", "",
	},
	{
		"counted and charged", "hits that the store has counted, but answered late, are charged again", "store/unsynced.go",
		"return !d.HasAcquired() && counted(d.charge) })", "return false && counted(d.charge) })", "",
	},
	{
		"refunds of a denied group", "hits of a group that another slot or store denies are not returned", "store/split.go",
		"\tp.sendRefund(refund, i, refunds)\n", "", "",
	},
	{
		"synced twice", "unsynced hits of fixed windows are charged twice", "store/script/sync.lua",
		"local is = min(max(min(was, MOST), 0) + number(i), MOST)", "local is = min(max(min(was, MOST), 0) + 2 * number(i), MOST)", "",
	},
	{
		"not synced", "unsynced hits are dropped when the store recovers", "store/sync.go",
		"\t\tif call.AppendUnsynced(at, d, sh.options.Jitter) {\n", "\t\tif d.Policy.UsesLeases() && call.AppendUnsynced(at, d, sh.options.Jitter) {\n", "",
	},
	{
		"burst and one", "a bucket in memory admits one hit more than its burst", "limiter/gcra.go",
		"return after, after <= k.full+held && k.step > 0", "return after, after <= k.full+k.step+held && k.step > 0", "",
	},
	{
		"burst and one in the store", "a bucket in the store admits one hit more than its burst", "store/script/algorithms.lua",
		"local room = not later(as, an, x.cs, x.cn)", "local room = not later(a, b, x.cs, x.cn)", "",
	},
	{
		"condition for ever", "store_unavailable is not cleared when the store recovers", "server/daemon/store.go",
		"append(fields, telemetry.Clear(shard, telemetry.StoreUnavailable, telemetry.StoreNotReached))...", "fields...", "",
	},
	{
		"oldest sub-window", "a sliding window in memory forgets its oldest sub-window too early", "limiter/sliding_window.go",
		"for x := v.head - r.k; x < current-r.k; x++ {", "for x := v.head - r.k; x <= current-r.k; x++ {", "",
	},
	{
		"oldest sub-window in the store", "a sliding window in the store forgets its oldest sub-window too early", "store/script/algorithms.lua",
		"for i = c.num - k, min(h, c.num - 1) do", "for i = c.num - k + 1, min(h, c.num - 1) do", "",
	},
	{
		"expires early", "the key of a fixed window expires before the window ends", "store/script/native.go",
		"return int64(at.end+keyMargin)/int64(time.Second) + c.ClockAhead + late", "return int64(at.end-keyMargin)/int64(time.Second) + c.ClockAhead + late", "",
	},
	{
		"window not reset", "a fixed window in the store continues the count of the last window", "store/script/call.go",
		"int64(p.WindowStart(now))/int64(time.Second), 10)", "int64(p.WindowStart(now))/int64(2*p.Window)*int64(2*p.Window)/int64(time.Second), 10)", "",
	},
	{
		"within and over", "hits of a denied request count as over the limit and within it", "server/answer/count.go",
		"\tdefault: // denied hits are not charged, or the limit was exceeded before\n\t\th.Over = hits\n", "\tdefault:\n\t\th.Over, h.Within = hits, hits\n", "",
	},
	{
		"not saved at exit", "counters are not saved when the process ends", "server/daemon/state_file.go",
		"\t\t<-ended\n\t\ts.save(s.logger.Info)\n", "\t\t<-ended\n", "",
	},
	{
		"leases restored", "leases in the state file are restored as held, although that was not asked for", "server/daemon/state_file.go",
		"\topt.RestoreLeases = o.Leases\n", "\topt.RestoreLeases = true\n", "",
	},
	{
		"quotas after a stall", "a service that stood still assigns rates before it has read what arrived meanwhile", "quota/divider.go",
		"d.nextTickBy, d.pausedUntil = never-d.o.MaxLate, d.now+stallPause", "d.nextTickBy = never - d.o.MaxLate", "",
	},
	{
		"quota stream spins", "a stream whose client does not read is queued again and again", "server/transport/builtin/quota.go",
		"\t\tq.pending = true\n\t\treturn\n", "\t\tq.queue()\n\t\treturn\n", "",
	},
	{
		"quota stream grows", "messages for a client that does not read are queued without a bound", "server/transport/builtin/quota.go",
		"\tcase q.unsent > 0: // Sent queues it again\n", "\tcase q.unsent < 0:\n", "",
	},
	{
		"condition that stays", "a condition lasts two minutes after its last error", "telemetry/condition_growth.go",
		"const growthEnds = time.Minute", "const growthEnds = 2 * time.Minute", "e2e/simulation.TestStateAgreesWithModel",
	},
	{
		"hasty condition", "missing costs are reported although some requests never had costs", "server/admin/stream_ends.go",
		"least = max(least, factorAgain*w.longest)", "", "e2e/simulation.TestStateAgreesWithModel",
	},
	{
		"cost without effect", "a cost does not end the condition that costs are missing", "server/admin/stream_ends.go",
		"w.requests, w.ever, w.first = 0, true, time.Time{}", "w.ever = true", "e2e/simulation.TestStateAgreesWithModel",
	},
	{
		"expired lease", "an expired lease is found by the next request only", "server/admin/state.go",
		"\ta.service.ExpireLeases()\n", "", "e2e/simulation.TestStateAgreesWithModel",
	},
	{
		"period of calls", "the rates of calls and of rules cover different times", "server/admin/state.go",
		"\ta.calls.advance(now, a.metrics.Calls)\n\ta.unknown", "\tif now.Unix()%3 == 0 {\n\t\ta.calls.advance(now, a.metrics.Calls)\n\t}\n\ta.unknown", "e2e/simulation.TestStateAgreesWithModel",
	},
}

// root is the root of the module.
const root = "../.."

// plant writes files with the defects, and returns the flag that lets the go command build them.
func plant(t *testing.T, defects ...*defect) string {
	t.Helper()
	dir, replace := t.TempDir(), map[string]string{}
	for i, d := range defects {
		original, err := filepath.Abs(path.Join(root, d.file))
		must.OK(t, err)
		text, err := os.ReadFile(cmp.Or(replace[original], original))
		must.OK(t, err)
		if n := strings.Count(string(text), d.old); n != 1 {
			t.Fatalf("%s: %s: the text to replace occurs %d times, want once; adapt the defect to the changed code", d.name, d.file, n)
		}
		replace[original] = path.Join(dir, fmt.Sprint(i, path.Base(d.file)))
		must.OK(t, os.WriteFile(replace[original], bytes.Replace(text, []byte(d.old), []byte(d.new), 1), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must.OK(t, err)
	must.OK(t, os.WriteFile(path.Join(dir, "overlay.json"), overlay, 0o600))
	return "-overlay=" + path.Join(dir, "overlay.json")
}

// TestDefectsApply verifies that the defects of each package can be planted, and compile.
func TestDefectsApply(t *testing.T) {
	packages := map[string][]*defect{}
	for i, d := range defects {
		packages[path.Dir(d.file)] = append(packages[path.Dir(d.file)], &defects[i])
	}
	for _, dir := range sortedKeys(packages) {
		build := exec.CommandContext(t.Context(), "go", "build", plant(t, packages[dir]...), "./"+dir)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
	}
}

// maxDefectSeeds is the number of seeds that must find each defect.
const maxDefectSeeds = 2000

// TestDefectsAreFound plants each defect in a binary of this package, and runs seeds until one
// fails; or in one of the package whose test finds it.
func TestDefectsAreFound(t *testing.T) {
	t.Parallel()
	if os.Getenv("SLUICE_LONG") == "" {
		t.Skip("builds a binary for each defect: SLUICE_LONG=1 go test ./e2e/simulation -run TestDefectsAreFound -v -timeout 0")
	}
	for _, d := range defects {
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			d.find(t)
		})
	}
}

// find builds a binary with the defect and runs it.
func (d *defect) find(t *testing.T) {
	t.Helper()
	binary := path.Join(t.TempDir(), "simulation.test")
	pkg, test, _ := strings.Cut(cmp.Or(d.foundBy, "e2e/simulation.TestSimulation"), ".")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", plant(t, d), "-o", binary, ".")
	build.Dir = path.Join(root, pkg)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	began := time.Now()
	run := exec.CommandContext(t.Context(), binary, "-test.run=^"+test+"$", "-test.v", "-test.timeout=0")
	run.Dir = build.Dir
	run.Env = append(os.Environ(), "SLUICE_SEED=", fmt.Sprint("SLUICE_SEEDS=", maxDefectSeeds))
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatalf("not found by %d seeds: %s", maxDefectSeeds, d.what)
	}
	seeds := regexp.MustCompile(`seed (\d+)`).FindAllStringSubmatch(string(out), -1)
	violation := `violated: .*|panic: .*|fatal error: .*`
	if d.foundBy != "" {
		violation = "--- FAIL: " + test
	}
	found := regexp.MustCompile(violation).FindString(string(out))
	if found == "" {
		t.Fatalf("the run failed without a violation: %v\n%s", err, out)
	}
	where := cmp.Or(d.foundBy, "seed below 500, as no progress was reported")
	if len(seeds) > 0 {
		where = "seed " + seeds[len(seeds)-1][1]
	}
	t.Logf("%s after %v: %s", where, time.Since(began).Round(time.Second), found)
}
