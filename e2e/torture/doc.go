// Package torture injects faults into the real binary under load and checks every answer.
//
// The tests have the build tag torture, so that `go test ./...` omits them. They have a common
// structure:
//
//	Parallel(t)                             // in the short tier, with other tests
//	rnd := Rand(t)                          // prints the seed
//	ledger := NewLedger(100, 50)            // limit, counters of each rule
//	s := Start(t, Options{Rules: ledger.Rules()})
//	load := StartLoad(t, LoadOptions{Rate: Rate, Call: ledger.Caller(t, s.Addr("grpc"), rnd)})
//	load.Run(t, 2*time.Second)
//	load.Phase("fault")                     // counts the calls that start after this
//	...                                     // the fault of this test
//	load.Phase("after")
//	load.Run(t, 2*time.Second)
//	report := load.Stop(t)                  // prints the load reached
//	report.AtLeast(t, MinRate, "before", "after")
//	report.NoErrors(t, "before", "after")
//	ledger.CheckCounters(t, s)              // counters agree with all replies
//
// The load is an open loop: each call is due at a fixed time, independent of earlier calls, and has
// [Deadline]. Its latency is measured from the due time. Latency is printed; answers, lost calls,
// memory, files and goroutines are checked. A test fails if its load was too small to be
// significant.
//
// The short tier is part of `make test-more`, the long tier is `make torture`; [Long] returns the tier.
// The short tier waits for enough answers, so that a busy machine makes it slow but does not fail
// it. The long tier also checks the rate and needs the machine for itself. To run one test with the
// seed of an earlier run:
//
//	SLUICE_SEED=7 go test -count=1 -v -tags torture ./e2e/torture -run TestName -args -long
//
// A seed does not repeat the order of goroutines and processes.
package torture
