package torture

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

const Root = "../.."

// Patience is the time limit for expected events.
const Patience = suite.Patience

var (
	long  = flag.Bool("long", false, "the long tier")
	raced = flag.Bool("raced", false, "run sluice with the race detector and a quarter of the load")
)

// Long reports whether this is the long tier.
func Long() bool { return *long }

// Parallel runs a test of the short tier in parallel. It must be the first call of the test. In the
// long tier tests run one by one.
func Parallel(t *testing.T) {
	t.Helper()
	if !Long() {
		t.Parallel()
	}
}

// Pick returns longer in the long tier, otherwise short.
func Pick[T any](short, longer T) T {
	if Long() {
		return longer
	}
	return short
}

// binary is built by Main.
var binary string

// Main is the body of TestMain. It builds sluice, runs the tests, fails if they leak goroutines,
// and returns the exit code.
func Main(m *testing.M) int {
	flag.Parse()
	if runtime.GOOS != "linux" {
		if err := suite.NoteSkipped("e2e/torture: the tests read /proc of Linux"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	var flags []string
	if *raced {
		flags = []string{"-race", "-tags", "limiterhooks"}
	}
	return suite.Main(m, Root, func(path, _ string) { binary = path }, flags...)
}

// reducedIfRaced returns a quarter of load if sluice has the race detector, otherwise load.
func reducedIfRaced[T int | float64](load T) T {
	if *raced {
		return load / 4
	}
	return load
}

// Rand returns random numbers with the seed SLUICE_SEED, or a new seed that it prints. They are not
// safe for concurrent use.
func Rand(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SLUICE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			tb.Fatalf("parse SLUICE_SEED: %v", err)
		}
		seed = n
	}
	tb.Logf("SLUICE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// Options configures [Start].
type Options struct {
	// Rules is the text of the rules file. Optional if Args contain rules.
	Rules string
	// Args contains more flags.
	Args []string
	// Env contains additional variables as NAME=value. Optional.
	Env []string
	// Addrs and Prepare are passed on in [sluice.Options].
	Addrs   map[string]string
	Prepare func(*exec.Cmd)
}

// Start starts the binary of [Main] and stops it when the test ends. It fails the test if a request
// panicked or the race detector reported a race.
func Start(tb testing.TB, o Options) *sluice.Sluice {
	tb.Helper()
	args := o.Args
	if o.Rules != "" {
		args = append([]string{"--config", suite.WriteRules(tb, o.Rules)}, args...)
	}
	return suite.StartSluice(tb, sluice.Options{Binary: binary, Args: args, Env: o.Env, Addrs: o.Addrs, Prepare: o.Prepare})
}

// RunUnder returns a Prepare function that starts sluice through another program, such as unshare,
// which must execute its last arguments.
func RunUnder(program ...string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		path, err := exec.LookPath(program[0])
		if err != nil {
			path = program[0] // the start reports the error
		}
		cmd.Args = append(append([]string(nil), program...), append([]string{cmd.Path}, cmd.Args[1:]...)...)
		cmd.Path = path
	}
}
