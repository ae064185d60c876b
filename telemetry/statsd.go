package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
)

// StatsdOptions configure a [Statsd]. Fields that are flags carry them as tags. Host names are
// resolved at each connection.
type StatsdOptions struct {
	Addr string `name:"statsd-addr" placeholder:"ADDR" help:"Address of a StatsD server to send metrics to: host:port or tcp://host:port, udp://host:port, or of a DogStatsD server: dogstatsd://host:port (UDP) or unix:///path. Default: none."`
	// Network is tcp, udp or unixgram. [StatsdOptions.ParseAddr] sets it.
	Network    string        `kong:"-"`
	Mogrifiers []Mogrifier   `name:"dogstatsd-mogrifier" sep:"none" placeholder:"RULE" help:"Rule that rewrites names of metrics for DogStatsD: PATTERN;NAME;KEY:VALUE,KEY:VALUE, where $$1 is the first group of the pattern. The first matching rule applies. May be repeated."`
	Interval   time.Duration `name:"STATS_FLUSH_INTERVAL" hidden:"" range:"1ns..87600h" default:"10s" placeholder:"TIME" help:"Interval at which metrics are sent to StatsD."`
	Tags       []Tag         `name:"extra-tags" type:"tags" placeholder:"K:V,K:V" help:"Tags to add to every metric."`
	// Dog is true if the server speaks DogStatsD: tags are sent as tags, and the DD_ variables of
	// Datadog's agents apply. Otherwise tags are appended to names as `.__key=value`.
	Dog bool `kong:"-"`
}

// ParseAddr replaces the URL in Addr by the address, and sets Network and Dog according to its
// scheme.
func (o *StatsdOptions) ParseAddr() error {
	scheme, addr, found := strings.Cut(o.Addr, "://")
	if !found {
		scheme = "tcp"
		addr = o.Addr
	}
	o.Network = map[string]string{"tcp": "tcp", "udp": "udp", "dogstatsd": "udp", "unix": "unixgram"}[scheme]
	o.Dog = scheme == "dogstatsd" || scheme == "unix"
	_, _, err := net.SplitHostPort(addr)
	if scheme == "unix" && strings.HasPrefix(addr, "/") {
		err = nil
	}
	if o.Network == "" || err != nil {
		return fmt.Errorf("%q: must be host:port, tcp://host:port, udp://host:port, dogstatsd://host:port or unix:///path", o.Addr)
	}
	o.Addr = addr
	return nil
}

// chunkLines is the number of lines per write. When a connection breaks, at most these are lost;
// the lines after them wait for the next flush.
const chunkLines = 256

// recoveryFlushes is the number of consecutive successful flushes that end an outage. Over UDP a
// flush to an absent server may succeed, since not every refused packet is reported.
const recoveryFlushes = 3

// flushTimeout bounds a flush, including the connection.
const flushTimeout = 2 * time.Second

// Statsd sends the metrics of a registry to a StatsD or DogStatsD server: the increase of counters,
// the values of gauges, and histograms as timers. Nothing waits for it. While the server is
// unavailable, counters continue and are sent afterwards; the memory is bounded by the series of
// the registry.
type Statsd struct {
	options StatsdOptions
	metrics *Metrics
	// milliseconds is the unit of the response time in milliseconds.
	milliseconds float64
	logger, rare *zap.Logger
	errors       prometheus.Counter
	conn         *statsdConn
	client       *statsd.Client
	// series are the series that were sent, by family and labels.
	series map[string]*sentSeries
	key    []byte // scratch
	lines  int    // number of lines in the chunk that is being written
	round  uint64
	// successes counts the successful flushes since the last failed one; down is true while an
	// outage is logged.
	successes int
	down      bool
	packet    int // size of a packet in bytes
}

// NewStatsd returns a sender for metrics. It connects when [Statsd.Run] first flushes.
func NewStatsd(options StatsdOptions, metrics *Metrics, logger *zap.Logger) (*Statsd, error) {
	s := &Statsd{
		options: options,
		metrics: metrics, milliseconds: metrics.Calls.unit.Seconds() * 1e3,
		logger: logger, rare: Rare(logger),
		errors: metrics.counter("sluice_statsd_errors_total", "Failed connections to the StatsD server, lost packets, and series that are not sent because their lines are longer than a packet."),
		conn:   newStatsdConn(options.Network, options.Addr, !options.Dog),
		series: map[string]*sentSeries{},
		packet: 1432, // fits in an Ethernet frame
	}
	if options.Network != "udp" {
		s.packet = 8192
	}
	metrics.Rules.keepEnded()
	// Datadog's identification of containers, which only its own servers understand.
	origin := statsd.WithoutOriginDetection()
	if options.Dog {
		origin = statsd.WithOriginDetection()
	}
	client, err := statsd.NewWithWriter(s.conn,
		statsd.WithoutTelemetry(), // it would send metrics of its own
		statsd.WithoutClientSideAggregation(),
		statsd.WithWorkersCount(1),
		statsd.WithBufferFlushInterval(time.Hour), // it is flushed after each chunk
		statsd.WithMaxBytesPerPayload(s.packet),
		statsd.WithSenderQueueSize(chunkLines+1), // so that the queue never drops a line
		statsd.WithBufferPoolSize(16),
		statsd.WithErrorHandler(func(error) { s.errors.Inc() }),
		origin,
	)
	if err != nil {
		return nil, fmt.Errorf("statsd client: %w", err)
	}
	s.client = client
	return s, nil
}

// Run flushes at each interval until ctx is done, and then once more. It returns at most four
// seconds after that. It must be called once.
func (s *Statsd) Run(ctx context.Context) {
	ticker := time.NewTicker(s.options.Interval)
	defer ticker.Stop()
	for running := true; running; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			running = false
		}
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		s.reportResult(s.flush(flush))
		cancel()
	}
	_ = s.client.Close() // errors have been reported
}

// reportResult logs the start and the end of an outage.
func (s *Statsd) reportResult(err error) {
	server := []zap.Field{zap.String("network", s.options.Network), zap.String("addr", s.options.Addr)}
	if err != nil {
		s.successes = 0
		if !s.down {
			s.down = true
			code := StatsdUnavailable
			if s.options.Network == "udp" { // not each packet is refused
				code = StatsdNotListening
			}
			Raise(s.logger, code, s.options.Addr, append(server, zap.Error(err))...)
		}
		return
	}
	if s.successes++; s.down && s.successes >= recoveryFlushes {
		s.down = false
		s.logger.Info("statsd: sending metrics again",
			append(server, Clear(s.options.Addr, StatsdUnavailable, StatsdNotListening))...)
	}
}

// flush sends the changes since the last flush. It returns an error if it failed, or if packets of
// the last flush were lost.
func (s *Statsd) flush(ctx context.Context) error {
	families, load := s.gather()
	refused, err := s.conn.open(ctx)
	if err != nil {
		s.errors.Inc()
		return err
	}
	if refused != nil {
		s.errors.Inc()
	}
	s.round++
	s.lines = 0
	for ended := s.metrics.Rules.nextEnded(load); ended != nil; ended = s.metrics.Rules.nextEnded(load) {
		if err := s.sendEnded(ended); err != nil {
			return err
		}
	}
	if err := s.sendFamilies(families, false); err != nil {
		return err
	}
	for key, series := range s.series {
		if series.round != s.round {
			delete(s.series, key) // its rule was removed
		}
	}
	return refused
}

// gather returns all metrics and the number of the last load of rules that they include. Series
// that end with a later load must not be sent before.
func (s *Statsd) gather() (families []*dto.MetricFamily, load uint64) {
	for load = s.metrics.Rules.loadCount(); ; {
		var err error
		if families, err = s.metrics.Registry.Gather(); err != nil {
			s.errors.Inc()
			s.logger.Debug("statsd: some metrics cannot be gathered", zap.Error(err))
		}
		was := load
		if load = s.metrics.Rules.loadCount(); load == was {
			return families, load
		}
	}
}

// sendEnded sends the last counts of series whose rules were removed. Series with the same names
// then start at 0.
func (s *Statsd) sendEnded(ended *endedSeries) error {
	families := s.metrics.Rules.families(ended.series, ended.stored)
	if err := s.sendFamilies(families, true); err != nil {
		return err
	}
	for key, series := range s.series {
		if series.ended {
			delete(s.series, key)
		}
	}
	s.metrics.Rules.forgetEnded(ended)
	return nil
}

// sendFamilies sends families. If ended is true, these are series that ended, and only their
// counters are sent.
func (s *Statsd) sendFamilies(families []*dto.MetricFamily, ended bool) error {
	for _, f := range families {
		for _, e := range statsdEntries(f) {
			if ended && e.kind != dto.MetricType_COUNTER {
				continue
			}
			for _, m := range f.GetMetric() {
				series := s.findSeries(&e, m)
				series.ended = ended
				s.send(series, &e, m)
				if s.lines < chunkLines {
					continue
				}
				if err := s.endChunk(); err != nil {
					return err
				}
			}
		}
	}
	return s.endChunk()
}

func (s *Statsd) endChunk() error {
	s.lines = 0
	if err := s.client.Flush(); err != nil {
		return err
	}
	return s.conn.lastError()
}

// findSeries returns the sent series of m, a new one if it was never sent.
func (s *Statsd) findSeries(e *statsdEntry, m *dto.Metric) *sentSeries {
	s.key = append(s.key[:0], e.id...)
	for _, l := range m.GetLabel() {
		s.key = append(append(s.key, 0), l.GetName()...)
		s.key = append(append(s.key, 0), l.GetValue()...)
	}
	series := s.series[string(s.key)]
	if series == nil {
		series = s.newSeries(e, m)
		s.series[string(s.key)] = series
	}
	series.round = s.round
	return series
}

func (s *Statsd) newSeries(e *statsdEntry, m *dto.Metric) *sentSeries {
	name, own := e.series(m, s.options.Tags)
	name = sanitizeName(name)
	tags := slices.Concat(s.options.Tags, own)
	if !s.options.Dog {
		return &sentSeries{name: appendTags(name, tags)}
	}
	for i := range s.options.Mogrifiers {
		if renamed, more, ok := s.options.Mogrifiers[i].apply(name); ok {
			name = renamed
			tags = append(tags, more...)
			break
		}
	}
	series := &sentSeries{name: name}
	for _, t := range tags {
		series.tags = append(series.tags, dogTag(t))
	}
	return series
}

func (s *Statsd) send(series *sentSeries, e *statsdEntry, m *dto.Metric) {
	var err error
	switch e.kind {
	case dto.MetricType_COUNTER:
		if grown := series.delta(toUint(e.value(m))); grown > 0 {
			s.lines++
			err = s.client.Count(series.name, grown, series.tags, 1)
		}
	case dto.MetricType_GAUGE:
		s.lines++
		err = s.client.Gauge(series.name, e.value(m), series.tags, 1)
	default:
		scale := s.scale(e.id)
		for _, value := range series.sample(m.GetHistogram()) {
			s.lines++
			err = errors.Join(err, s.client.TimeInMilliseconds(series.name, value*scale, series.tags, 1))
		}
	}
	if err == nil || series.oversized { // an oversized line is reported once
		return
	}
	s.errors.Inc()
	series.oversized = true
	s.rare.Warn("statsd: a metric is not sent, because its line is longer than a packet; shorten its name and tags, or send over TCP; more within ten seconds are not logged",
		zap.String("metric", fmt.Sprintf("%.200s", series.name)), zap.Int("packet_bytes", s.packet))
}

// scale returns the factor for the values of a histogram: times are sent in milliseconds, other
// values unchanged.
func (s *Statsd) scale(family string) float64 {
	switch {
	case family == responseTime:
		return s.milliseconds
	case strings.HasSuffix(family, "_seconds"):
		return 1e3
	default:
		return 1
	}
}
