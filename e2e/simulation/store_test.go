package simulation

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// Topologies of the store.
const (
	onePrimary = "one primary"
	sentinels  = "Sentinel" // three Sentinels, a primary and a replica
	cluster    = "cluster"  // of three shards
	perSecond  = "second store"
)

const (
	storePort    = ":6379"
	sentinelPort = ":26379"
	masterName   = "main"
)

// sharedStore is the store that sluices share, on one or more hosts.
type sharedStore struct {
	network    *network
	topology   string
	shards     []*storeHost // the current primaries
	replica    *storeHost   // of the primary, with Sentinel
	services   []*service   // all of them, with primaries that have left the cluster
	sentinels  []*sentinelHost
	cluster    *luahost.Cluster
	operations turn // guards the fields above
}

// storeHost is a host with a server of the store.
type storeHost struct {
	*luahost.Server
	*service
}

// sentinelHost is a host with a Sentinel.
type sentinelHost struct {
	*luahost.Sentinel
	*service

	primary atomic.Value // the address of the primary, as this Sentinel knows it
	lies    atomic.Value // another address that it reports, "" for none
}

// service is a process that listens on a host.
type service struct {
	network  *network
	address  string
	serve    func(net.Listener) error
	listener net.Listener // nil while stopped
}

func (s *service) start() {
	l := mustHave(s.network.listen(s.address))
	s.listener = l
	go func() { _ = s.serve(l) }()
}

// stop ends the process: connections are reset, and new ones refused.
func (s *service) stop() {
	if s.listener != nil {
		_ = s.listener.Close()
		s.network.reset(hostOf(s.address))
		s.listener = nil
	}
}

func (s *service) restart(after time.Duration) {
	s.stop()
	time.Sleep(after)
	s.start()
}

// startService starts a service that is stopped with the store.
func (s *sharedStore) startService(address string, serve func(net.Listener) error) *service {
	h := &service{network: s.network, address: address, serve: serve}
	h.start()
	s.services = append(s.services, h)
	return h
}

func (s *sharedStore) startHost(host string, server *luahost.Server) *storeHost {
	return &storeHost{server, s.startService(host+storePort, server.Serve)}
}

// newSharedStore starts the hosts of a store.
func newSharedStore(n *network, topology string) *sharedStore {
	s := &sharedStore{network: n, topology: topology, operations: newTurn()}
	servers := []*luahost.Server{luahost.NewServer()}
	switch topology {
	case cluster:
		s.cluster = luahost.NewCluster("store-0"+storePort, "store-1"+storePort, "store-2"+storePort)
		servers = s.cluster.Servers()
	case perSecond:
		servers = append(servers, luahost.NewServer())
	}
	for i, server := range servers {
		s.shards = append(s.shards, s.startHost(fmt.Sprint("store-", i), server))
	}
	if topology != sentinels {
		return s
	}
	s.replica = s.startHost("store-1", luahost.NewServer())
	s.replica.SetRole(luahost.Replica)
	for i := range 3 {
		h := &sentinelHost{}
		h.primary.Store(s.shards[0].address)
		h.lies.Store("")
		h.Sentinel = luahost.NewSentinel(masterName, func() string { return cmp.Or(h.lies.Load().(string), h.primary.Load().(string)) })
		h.service = s.startService(fmt.Sprint("sentinel-", i, sentinelPort), h.Serve)
		s.sentinels = append(s.sentinels, h)
	}
	return s
}

// stop stops all hosts.
func (s *sharedStore) stop() {
	for _, h := range s.services {
		h.stop()
	}
}

// options returns the options of a client of the store.
func (s *sharedStore) options(c *scenario, dial func(ctx context.Context, network, to string) (net.Conn, error), host string) *store.Options {
	o := &store.Options{
		Server: redis.Server{DialContext: dial}, Timeout: c.storeTimeout, DialTimeout: time.Second, Fallback: c.fallback, Jitter: -1, Blocks: c.blocks,
		Spread: func(mean time.Duration) time.Duration { return mean + s.network.latencyOf(host+" spread") },
	}
	second := o.Server
	switch s.topology {
	case sentinels:
		o.Server.Master = masterName
		for _, h := range s.sentinels {
			o.Server.Sentinels = append(o.Server.Sentinels, h.address)
		}
	case cluster:
		o.Server.Nodes = []string{"store-0" + storePort, "store-1" + storePort, "store-2" + storePort}
	case perSecond:
		second.Network, second.Address = "tcp", "store-1"+storePort
		o.PerSecond = &second
		fallthrough
	default:
		o.Server.Network, o.Server.Address = "tcp", "store-0"+storePort
	}
	return o
}

// chooseTopology chooses the topology of the store, and the hosts of its faults.
func (c *scenario) chooseTopology() {
	r := rand.New(rand.NewPCG(c.seed, 2))
	c.topology = []string{onePrimary, onePrimary, sentinels, cluster, perSecond}[r.IntN(5)]
	if !c.shared {
		return
	}
	for i := range c.faults {
		f := &c.faults[i]
		if f.host != "store" {
			continue
		}
		f.host = "store-0"
		switch c.topology {
		case sentinels:
			switch r.IntN(6) {
			case 0:
				f.host = fmt.Sprint("sentinel-", r.IntN(3))
				f.kind = []string{"silence", "slow", "reset", "stop", "lie"}[r.IntN(5)]
			case 1, 2:
				f.kind = failovers[r.IntN(len(failovers))]
			}
		case cluster:
			f.host = fmt.Sprint("store-", r.IntN(3))
			switch r.IntN(6) {
			case 0, 1:
				f.kind = "move slots"
			case 2:
				f.kind = failovers[r.IntN(len(failovers))]
			}
		case perSecond:
			f.host = fmt.Sprint("store-", r.IntN(2))
		}
	}
}

// failovers are the kinds of failovers to a replica that lacks the last writes. The old primary is
// stopped, goes on answering, or is silent.
var failovers = []string{"failover", "split failover", "silent failover"}

func (f fault) isFailover() bool { return slices.Contains(failovers, f.kind) }

// suffer plays a fault of the store. The host is that of a Sentinel, or store-N for the current
// primary of shard N.
func (s *sharedStore) suffer(f fault) {
	var i int
	if _, err := fmt.Sscanf(f.host, "sentinel-%d", &i); err == nil {
		s.sentinels[i].suffer(f)
		return
	}
	_ = mustHave(fmt.Sscanf(f.host, "store-%d", &i))
	defer s.operations.acquire()()
	f.host = hostOf(s.shards[i].address)
	switch {
	case f.isFailover() && s.topology == sentinels:
		s.failOver(f)
	case f.isFailover() && s.topology == cluster:
		s.replaceShard(f, i)
	case f.kind == "move slots":
		s.moveSlots(f, i, (i+1)%len(s.shards))
	default:
		s.shards[i].suffer(f)
	}
}

// suffer plays a fault of a server.
func (s *storeHost) suffer(f fault) {
	if s.network.suffer(f) {
		return
	}
	switch f.kind {
	case "stop":
		s.restart(f.d)
	case "flush": // a restart without persistence
		s.stop()
		s.FlushAll()
		s.start()
	case "failover": // to a replica that lacks the last writes, with the same address
		time.Sleep(f.d)
		snapshot := s.Snapshot()
		time.Sleep(replicationLag)
		s.stop()
		s.Restore(snapshot)
		s.start()
	case "stall": // what has arrived is executed later, even if its connection has ended meanwhile
		until := time.Now().Add(f.d)
		s.OnCommand(func(string, [][]byte, []byte) { time.Sleep(time.Until(until)) })
		time.Sleep(f.d)
		s.OnCommand(nil)
	case "loading":
		s.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(f.d)
		s.SetError("")
	case "oom":
		s.SetWriteError("OOM command not allowed when used memory > 'maxmemory'.")
		time.Sleep(f.d)
		s.SetWriteError("")
	default:
		panic(f.kind)
	}
}

// replicationLag is the age of the writes that a failover loses.
const replicationLag = 20 * time.Millisecond

// lose makes a primary unreachable that is about to be replaced, unless it goes on answering.
func (s *storeHost) lose(f fault) {
	switch f.kind {
	case "failover":
		s.stop()
	case "silent failover":
		s.network.silence(hostOf(s.address), f.d+time.Second)
	}
}

// failOver promotes the replica of the primary. The Sentinels learn it at different times.
func (s *sharedStore) failOver(f fault) {
	random := rand.New(rand.NewPCG(s.network.seed, uint64(f.at)))
	old, promoted := s.shards[0], s.replica
	snapshot := old.Snapshot()
	time.Sleep(replicationLag)
	old.lose(f)
	promoted.Restore(snapshot)
	promoted.SetRole(luahost.Primary)
	s.shards[0], s.replica = promoted, old
	latest := time.Duration(0)
	for _, h := range s.sentinels {
		after := time.Duration(random.Int64N(int64(1500 * time.Millisecond)))
		latest = max(latest, after)
		time.AfterFunc(after, func() { h.primary.Store(promoted.address) })
	}
	time.Sleep(max(f.d, latest+time.Millisecond))
	old.stop()
	old.SetRole(luahost.Replica)
	old.start()
}

// suffer plays a fault of a Sentinel.
func (s *sentinelHost) suffer(f fault) {
	if s.network.suffer(f) {
		return
	}
	switch f.kind {
	case "stop":
		s.restart(f.d)
	case "lie": // it reports an address without a server
		s.lies.Store("nowhere" + storePort)
		time.Sleep(f.d)
		s.lies.Store("")
	default:
		panic(f.kind)
	}
}

// replaceShard promotes a replica of a shard, which has another address.
func (s *sharedStore) replaceShard(f fault, i int) {
	old := s.shards[i]
	snapshot := old.Snapshot()
	time.Sleep(replicationLag)
	old.lose(f)
	host := fmt.Sprint("store-", i, "-", len(s.services))
	server := s.cluster.Replace(i, host+storePort)
	server.Restore(snapshot)
	s.shards[i] = s.startHost(host, server)
	time.Sleep(f.d)
	old.stop()
}

// moveSlots moves all slots of a shard that have keys to another one.
func (s *sharedStore) moveSlots(f fault, from, to int) {
	var slots []uint16
	for _, key := range s.shards[from].Keys() {
		slots = append(slots, redis.SlotOf([]byte(key)))
	}
	slices.Sort(slots)
	slots = slices.Compact(slots)
	for _, slot := range slots {
		s.cluster.BeginMove(slot, to)
	}
	for _, slot := range slots {
		time.Sleep(f.d / time.Duration(len(slots)))
		s.cluster.MoveSlot(slot, to)
	}
}
