// Command mistakes plants mistakes in the code that answers requests, one at a time, and prints which
// test finds each: a measure of the tests of `make test`. A seed selects the mistakes; with the same
// seed and the same code they are the same.
//
//	go -C tools run ./mistakes -n 20 ..                # 20 mistakes of a new seed
//	go -C tools run ./mistakes -seed 7 -only 3,9 ..    # two of seed 7 again
//	go -C tools run ./mistakes -seed 7 -only 3 -more ..
//
// A mistake is a negated comparison, + for - or - for +, or a dropped statement. One that does not
// compile is replaced by the next. No file of the tree changes, because the go command builds with
// -overlay. First the tests of the package run, then those of the packages that import it, then
// e2e/proxy with a real Envoy. With -more they are the tests of `make test-more`, and those of all
// packages of e2e that start sluice.
//
// Some mistakes change nothing that a caller can observe, such as a dropped reuse of memory, so not
// every miss is a missing test. The tests also run once without a mistake: to see that they pass, and how
// long they take, because with a mistake such as a dropped Unlock they may wait without end.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// requestPath are the packages in which mistakes are planted. If files is set, only those.
var requestPath = []struct {
	dir   string
	files []string
}{
	{dir: "server/transport/h2"},
	{dir: "server/transport/builtin"},
	{dir: "server/answer"},
	{dir: "descriptors", files: []string{
		"address.go", "denied.go", "exempt.go", "leases.go", "match.go", "metrickey.go", "node.go", "override.go",
		"plan.go", "quota.go", "ranges.go", "reservation.go", "set.go", "soft.go", "table.go", "wildcard.go",
	}},
	{dir: "limiter"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mistakes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	seed := flag.Uint64("seed", 0, "seed that selects the mistakes; 0 for a new one")
	n := flag.Int("n", 10, "number of mistakes")
	list := flag.String("only", "", "plant only the mistakes with these numbers, separated by commas")
	more := flag.Bool("more", false, "run the tests of make test-more")
	timeout := flag.Duration("timeout", 10*time.Minute,
		"time for the tests of a package; a mistake that takes longer, or four times as long as without it, is found")
	flag.Parse()
	root, err := filepath.Abs(cmp.Or(flag.Arg(0), "."))
	if err != nil {
		return err
	}
	only, err := numbers(*list)
	if err != nil {
		return err
	}
	t, err := newTester(ctx, root, *more, *timeout)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(t.dir) }()
	all, err := t.places()
	if err != nil {
		return err
	}
	for *seed == 0 {
		*seed = uint64(rand.Uint32())
	}
	rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	fmt.Printf("seed %d of %d possible mistakes\n", *seed, len(all))
	if len(only) == 0 {
		for i := range all {
			only = append(only, i+1)
		}
	} else {
		*n = len(only)
	}
	if err := t.plantAll(ctx, all, only, *n); err != nil {
		return err
	}
	return t.reportNotRun()
}

// hook is a call of limiter/hooks_off.go.
var hook = regexp.MustCompile(`^(\w+\.)*(pause|poison|poisonStored)\(`)

// plantAll plants the first n mistakes that compile of those with the given numbers.
func (t *tester) plantAll(ctx context.Context, all []mistake, chosen []int, n int) error {
	planted := 0
	missed := 0
	for _, i := range chosen {
		if planted == n {
			break
		}
		if i < 1 || i > len(all) {
			return fmt.Errorf("there is no mistake %d", i)
		}
		m := all[i-1]
		began := time.Now()
		if hook.MatchString(m.oldLine) && m.newLine == "(dropped)" {
			fmt.Printf("%d: %s:%d drops a hook of tests, which does nothing without its tag\n", i, m.file, m.line)
			continue
		} else if err := t.plant(ctx, m); errors.Is(err, errNotCompiled) {
			fmt.Printf("%d: %s:%d does not compile\n", i, m.file, m.line)
			continue
		} else if err != nil {
			return err
		}
		planted++
		fmt.Printf("%d: %s:%d\n", i, m.file, m.line)
		fmt.Printf("\t- %s\n\t+ %s\n", m.oldLine, m.newLine)
		foundBy, err := t.find(ctx, m)
		if err != nil {
			return err
		}
		verdict := "found by " + foundBy
		if foundBy == "" {
			missed++
			verdict = "MISSED"
		}
		fmt.Printf("\t%s (%v)\n", verdict, time.Since(began).Round(time.Second))
	}
	fmt.Printf("%d mistakes, %d missed\n", planted, missed)
	return nil
}

func numbers(list string) (all []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("flag -only: %w", err)
		}
		all = append(all, n)
	}
	return all, nil
}

// places returns all mistakes that can be planted, in a fixed order.
func (t *tester) places() (all []mistake, err error) {
	for _, one := range requestPath {
		p := t.packages[t.module+"/"+one.dir]
		if p == nil {
			return nil, fmt.Errorf("there is no package %s", one.dir)
		}
		for _, name := range one.files {
			if !slices.Contains(p.GoFiles, name) {
				return nil, fmt.Errorf("there is no file %s in %s", name, one.dir)
			}
		}
		for _, name := range p.GoFiles {
			if len(one.files) > 0 && !slices.Contains(one.files, name) {
				continue
			}
			file := one.dir + "/" + name
			text, err := os.ReadFile(filepath.Join(t.root, file))
			if err != nil {
				return nil, err
			}
			found, err := mistakes(file, text)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}
