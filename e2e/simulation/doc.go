// Package simulation runs whole sluices in simulated time, with faults that a seed chooses.
//
// A run is one process and one bubble of testing/synctest. It has 1 to 3 sluices, assembled by
// server/daemon as sluice serve assembles them; a store that runs the real Lua scripts
// (store/storetest/luahost); proxies that call as Envoy does; and an in-memory network between them.
//
//	network_test.go     connections with latency, silence and resets
//	replica_test.go     sluices, which start, drain, are killed and reload rules
//	store_test.go       the store: one primary, Sentinel, a cluster, a second store
//	envoy_test.go       proxies: deadlines, disconnecting clients, calls at the end of requests
//	orders_test.go      tables, lists, groups, refunds, delayed responses, penalties, resets
//	hostile_test.go     hostile clients, and the bounds that hold despite them
//	scenario_test.go    what a seed chooses: rules, load, settings
//	faults_test.go      faults, operations of operators, and how much more each of them permits
//	ledger_test.go      the requests, and the bounds that they must satisfy; also orders_ledger_test.go
//	rest_test.go        what must be true when everything is over
//	invariants_test.go  ledgers that violate each invariant
//	world_test.go       a run
//	simulation_test.go  the tests, and the report of a failed run
//	defects_test.go     mistakes in the service that a run must find; testdata/defects.diff has them
//	state_test.go       sluices whose state is compared with a model, state_model_test.go
//
// # Seeds
//
// SLUICE_SEED=n replays the run of a seed and prints its events. Otherwise TestSimulation runs the
// seeds from 1 to 20, to 200 with SLUICE_EFFORT=10, or those from -first to -last. Latencies depend
// only on the seed, the connection and the time, GOMAXPROCS is 1, and events of the same nanosecond
// may be in any order, so most seeds give the same trace each time.
//
// # Defects
//
// TestDefectsAreFound plants mistakes in the service, one at a time, and runs seeds until one fails.
// It is part of make simulation. TestDefectsApply verifies that they can still be planted.
package simulation
