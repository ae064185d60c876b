//go:build torture

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/e2e/process"
	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// childVariable makes this program an attacker. Attackers must not share a scheduler and memory with
// the callers, whose latency is measured.
const childVariable = "SLUICE_TORTURE_CHILD"

func TestMain(m *testing.M) {
	serveAsChild()
	os.Exit(Main(m))
}

// child is the configuration of an attacker.
type child struct {
	Attack      string // name of an attack
	Labor       string // or of a labor, at Addr
	Addr        string
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
	if err == nil {
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
	ctx, cancel := context.WithTimeout(context.Background(), c.For)
	defer cancel()
	if c.Labor != "" {
		return c.work(ctx)
	}
	attack, err := hostile.Find(c.Attack, c.Target)
	if err != nil {
		return err
	}
	outcome, err := attack.Run(ctx, c.Target, c.Connections)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(outcome)
}

// start starts a child with the given niceness.
func (c child) start(tb testing.TB, nice int) *process.Process {
	tb.Helper()
	text, err := json.Marshal(c)
	must.OK(tb, err)
	cmd := exec.Command("nice", "-n", strconv.Itoa(nice), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	p, err := process.Start(cmd)
	must.OK(tb, err)
	tb.Cleanup(p.Kill)
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
