package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Store are the metrics of a store that replicas share. Its methods may be called concurrently.
type Store struct {
	took, charges   prometheus.Histogram
	decided, errors map[string]prometheus.Counter
	diverged        prometheus.Counter
	repaid, forgot  prometheus.Counter
}

// Store returns the metrics of a store, and registers them: it is called once, where there is to be
// one. Deciders are all that may decide charges, and kinds all reasons for which a batch may fail. At each
// scrape shards tells which there are and whether each answers, and offset by how much the store's
// clock is ahead of this machine's.
func (m *Metrics) Store(deciders, kinds []string, shards func() map[string]bool, offset func() time.Duration) *Store {
	m.Rules.stored.Store(true)
	decided := m.counters("sluice_store_charges_total",
		"Charges, by who decided them: store; memory, for a refusal that the store would repeat; fallback, while the store was away; too_large, also memory, for a request that would keep the store busy for long.", "by")
	failed := m.counters("sluice_store_errors_total", "Batches and probes of the store that failed, by what went wrong.", "kind")
	s := &Store{
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_store_batch_seconds", Help: "How long the store took to answer a batch, the trip included.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, 1},
		}),
		charges: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_store_batch_charges", Help: "Charges in a batch that the store has answered.", Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}),
		decided: make(map[string]prometheus.Counter, len(deciders)),
		errors:  make(map[string]prometheus.Counter, len(kinds)),
		diverged: m.counter("sluice_store_divergence_total",
			"Batches of which the store admitted another number of charges than its reply says: a bug of sluice's."),
		repaid: m.counter("sluice_store_repaid_hits_total",
			"Hits that were admitted while the store was away, and charged to it when it was back."),
		forgot: m.counter("sluice_store_forgotten_hits_total",
			"Hits that were admitted while the store was away, and never charged to it: they were on too many counters, or on a key that another program wrote."),
	}
	for _, by := range deciders {
		s.decided[by] = decided.WithLabelValues(by)
	}
	for _, k := range kinds {
		s.errors[k] = failed.WithLabelValues(k)
	}
	m.Register(shardCollector(shards), s.took, s.charges, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_store_clock_offset_seconds", Help: "By how much the store's clock is ahead of this machine's.",
	}, func() float64 { return offset().Seconds() }))
	return s
}

type shardCollector func() map[string]bool

var upDesc = prometheus.NewDesc("sluice_store_up",
	"1 while a shard of the store answers, 0 while --store-fallback decides what is there.", []string{"shard"}, nil)

// Describe implements [prometheus.Collector].
func (c shardCollector) Describe(ch chan<- *prometheus.Desc) { ch <- upDesc }

// Collect implements [prometheus.Collector].
func (c shardCollector) Collect(ch chan<- prometheus.Metric) {
	for shard, up := range c() {
		value := 0.0
		if up {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, value, shard)
	}
}

// Batch notes a batch of so many charges that the store has answered.
func (s *Store) Batch(took time.Duration, charges int) {
	s.took.Observe(took.Seconds())
	s.charges.Observe(float64(charges))
}

// Failed notes a batch or a probe that failed, by one of the kinds.
func (s *Store) Failed(kind string) { s.errors[kind].Inc() }

// Decided notes so many charges that one of the deciders decided.
func (s *Store) Decided(by string, charges int) { s.decided[by].Add(float64(charges)) }

// Synced notes hits that the store was charged with after it had been away.
func (s *Store) Synced(hits uint64) { s.repaid.Add(float64(hits)) }

// Dropped notes hits that it will not be charged with.
func (s *Store) Dropped(hits uint64) { s.forgot.Add(float64(hits)) }

// Diverged notes a bug.
func (s *Store) Diverged() { s.diverged.Inc() }
