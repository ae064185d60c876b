// Package torture ill-treats the real binary under load and checks every answer.
//
// A torture is a test of this folder with the build tag torture, so that
// `go test ./...` leaves it out. All of them begin alike:
//
//	Parallel(t)                             // in the short tier, while others run
//	rnd := Rand(t)                          // prints the seed
//	ledger := NewLedger(100, 50)            // limit, counters of each rule
//	s := Start(t, Options{Rules: ledger.Rules()})
//	watch := StartWatch(t, s)               // memory, files, goroutines
//	load := StartLoad(t, LoadOptions{Rate: Rate, Ask: ledger.Caller(t, s.Addr("grpc"), rnd)})
//	load.Run(t, 2*time.Second)
//	load.Phase("fault")                     // calls that begin from now on
//	...                                     // what this torture is about
//	load.Phase("after")
//	load.Run(t, 2*time.Second)
//	report := load.Stop(t)                  // prints the load reached
//	report.AtLeast(t, Least, "before", "after")
//	report.NoErrors(t, "before", "after")
//	ledger.Settle(t, s)                     // what was counted is what was said
//
// The load is an open loop. A call is due at a fixed time, whatever became of those
// before, and has [Deadline]. Its lateness counts from the due time. How late calls come
// is printed and not asserted. What is answered, what is lost, memory, files and
// goroutines are asserted. A test fails when its load was too small to say anything.
//
// There are two tiers: the short one is part of `make test`, the long one is
// `make torture`; [Long] tells a test which it is in. The short one waits until there are
// enough answers, so a busy machine makes it slow but not red. The long one also
// wants a rate, and the machine to itself. One torture by name, with the seed of an
// earlier run:
//
//	SLUICE_SEED=7 go test -count=1 -v -tags torture ./e2e/torture -run TestName -args -long
//
// A seed does not repeat the order of goroutines and processes.
package torture
