// Package torture ill-treats the real binary under load and checks every answer.
//
// A torture is a test of this folder with the build tag torture, so that
// `go test ./...` leaves it out. All of them begin alike:
//
//	rnd := torture.Rand(t)                        // prints the seed
//	ledger := torture.NewLedger(100, 50)          // limit, counters of each rule
//	s := torture.Start(t, torture.Options{Rules: ledger.Rules()})
//	watch := torture.StartWatch(t, s)             // memory, files, goroutines
//	load := torture.StartLoad(t, torture.LoadOptions{
//		Rate: torture.Rate, Ask: ledger.Caller(t, s.Addr("grpc"), rnd),
//	})
//	load.Run(t, 2*time.Second)
//	load.Phase("fault")                           // calls that begin from now on
//	...                                           // what this torture is about
//	load.Phase("after")
//	load.Run(t, 2*time.Second)
//	report := load.Stop(t)                        // prints the load reached
//	report.AtLeast(t, torture.Least, "before", "after")
//	report.NoErrors(t, "before", "after")
//	ledger.Settle(t, s)                           // what was counted is what was said
//
// The load is an open loop: a call is due at a fixed time whatever became of those
// before, has [Deadline], and its lateness counts from the due time. How late calls
// come is printed, not asserted; what is answered, what is lost, memory, files and
// goroutines are asserted. A test fails when its load was too small to say anything.
//
// There are two tiers: the short one is part of `make test`, the long one is
// `make torture`, and [Long] tells a test which it is in. The short one counts answers
// and waits for them, so that a busy machine makes it slow and not red; the long one also
// wants a rate, and the machine to itself. One torture by name, with the seed of an
// earlier run:
//
//	SLUICE_SEED=7 go test -count=1 -v -tags torture ./e2e/torture -run TestName -args -long
//
// The order of goroutines and processes is not repeated by a seed.
package torture
