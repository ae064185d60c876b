package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Store are the metrics of a shared store. Its methods may be called concurrently.
type Store struct {
	took, charges   prometheus.Histogram
	decided, errors map[string]prometheus.Counter
	diverged        prometheus.Counter
	synced, dropped prometheus.Counter
	blocks          map[string]prometheus.Counter
}

// Store registers and returns the metrics of a store. It may be called only once. deciders, events and
// kinds are all possible values of Decided, Blocks and Failed. At each scrape, reached reports whether the
// store has ever answered, shards returns the shards of the store and whether each is available, and
// offset by how much the store's clock is ahead of the local one.
func (m *Metrics) Store(
	deciders, events, kinds []string, reached func() bool, shards func() map[string]bool, offset func() time.Duration,
) *Store {
	m.Rules.stored.Store(true)
	decided := m.counters("sluice_store_charges_total",
		"Charges, by where they were decided: store, also for look-ups; memory, for a denial that the store would repeat; block, from hits that were charged in advance, or a denial of the last 50 ms; fallback, while the store was unavailable; too_large, in memory because the request would occupy the store for too long.", "by")
	failed := m.counters("sluice_store_errors_total", "Batches and probes of the store that failed, by kind of error.",
		"kind")
	blocks := m.counters("sluice_store_block_hits_total",
		"Hits of blocks, which --store-blocks charges to the store in advance: acquired; returned to the store unused; lost, because the block ended, the connection failed or the counter was reset.", "result")
	s := &Store{
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_store_batch_duration_seconds", Help: "Time until the store answered a batch, including the network.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, 1},
		}),
		charges: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_store_batch_charges", Help: "Charges per batch that the store answered.", Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}),
		decided: byValue(decided, deciders),
		errors:  byValue(failed, kinds),
		blocks:  byValue(blocks, events),
		diverged: m.counter("sluice_store_divergent_batches_total",
			"Batches of which sluice and the store computed different numbers of admitted charges: a bug in sluice."),
		synced: m.counter("sluice_store_synced_hits_total",
			"Hits that were admitted while the store was unavailable, and charged to it afterwards."),
		dropped: m.counter("sluice_store_dropped_hits_total",
			"Hits that were admitted while the store was unavailable, and not charged to it afterwards: there were too many counters, or another program wrote the key."),
	}
	m.Register(shardCollector(shards), s.took, s.charges, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_store_reached", Help: "1 once the store has answered since the start of the process, 0 before.",
	}, func() float64 { return oneIf(reached()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_store_clock_offset_seconds", Help: "How far the store's clock is ahead of the local clock.",
	}, func() float64 { return offset().Seconds() }))
	return s
}

// byValue returns the counters of a vector with one label, by its values.
func byValue(v *prometheus.CounterVec, values []string) map[string]prometheus.Counter {
	counters := make(map[string]prometheus.Counter, len(values))
	for _, value := range values {
		counters[value] = v.WithLabelValues(value)
	}
	return counters
}

func oneIf(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

type shardCollector func() map[string]bool

var upDesc = prometheus.NewDesc("sluice_store_up",
	"1 while a shard of the store is available, 0 while --store-fallback decides its charges.", []string{"shard"}, nil)

// Describe implements [prometheus.Collector].
func (c shardCollector) Describe(ch chan<- *prometheus.Desc) { ch <- upDesc }

// Collect implements [prometheus.Collector].
func (c shardCollector) Collect(ch chan<- prometheus.Metric) {
	for shard, up := range c() {
		ch <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, oneIf(up), shard)
	}
}

// Batch records a batch that the store answered, with the given number of charges.
func (s *Store) Batch(took time.Duration, charges int) {
	s.took.Observe(took.Seconds())
	s.charges.Observe(float64(charges))
}

// Failed counts a batch or a probe that failed, by kind.
func (s *Store) Failed(kind string) { s.errors[kind].Inc() }

// Decided counts charges by where they were decided.
func (s *Store) Decided(by string, charges int) { s.decided[by].Add(float64(charges)) }

// Synced counts hits that were charged to the store after an outage.
func (s *Store) Synced(hits uint64) { s.synced.Add(float64(hits)) }

// Dropped counts hits of an outage that will not be charged to the store.
func (s *Store) Dropped(hits uint64) { s.dropped.Add(float64(hits)) }

// Blocks counts hits of blocks, by event.
func (s *Store) Blocks(event string, hits uint64) { s.blocks[event].Add(float64(hits)) }

// Diverged counts a batch whose reply differs from its effect.
func (s *Store) Diverged() { s.diverged.Inc() }
