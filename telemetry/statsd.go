package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
)

// StatsdOptions say where a [Statsd] sends. Fields that are flags carry them as tags. Names are
// resolved at each connection.
type StatsdOptions struct {
	Addr string `name:"statsd-addr" placeholder:"ADDR" help:"Address of a StatsD server to send metrics to: host:port. Default: none."`
	// Network may also be unixgram, for DogStatsD.
	Network    string        `name:"statsd-protocol" enum:"tcp,udp" default:"tcp" placeholder:"tcp|udp" help:"Protocol of the StatsD server: tcp or udp."`
	Mogrifiers []Mogrifier   `name:"dogstatsd-mogrifier" sep:"none" placeholder:"RULE" help:"Rule that rewrites names of metrics for DogStatsD: PATTERN;NAME;KEY:VALUE,KEY:VALUE, where $$1 is the first group of the pattern. The first matching rule applies. May be repeated."`
	Interval   time.Duration `name:"stats-flush-interval" range:"1ns..87600h" default:"10s" placeholder:"TIME" help:"Interval at which metrics are sent to StatsD."`
	Tags       []Tag         `name:"extra-tags" type:"tags" placeholder:"K:V,K:V" help:"Tags to add to every metric."`
	// Dog says that the other side speaks DogStatsD: tags are sent as tags, and the DD_ variables of
	// Datadog's agents are heeded. Else tags are appended to names as `.__key=value`.
	Dog bool `kong:"-"`
}

// chunkLines is how many lines are sent at a time. When a connection breaks, that many
// are lost. The lines after them wait for the next flush.
const chunkLines = 256

// endsOutage is the number of flushes in a row that must succeed before an outage
// counts as over. Over UDP a flush to an absent receiver may succeed, since it may hear of no refused packet.
const endsOutage = 3

// flushTimeout bounds a flush, with connecting.
const flushTimeout = 2 * time.Second

// Statsd sends what a registry holds to a StatsD or DogStatsD server: counters as
// what they grew by, gauges as they are, histograms as timers. Nothing waits for
// it. While the server is away, counters go on and are sent once it is back; the
// memory it takes is bounded by the registry's series.
type Statsd struct {
	options StatsdOptions
	metrics *Metrics
	// milliseconds is how many of them the response time counts as 1.
	milliseconds float64
	logger       *zap.Logger
	errors       prometheus.Counter
	outlet       *outlet
	client       *statsd.Client
	// series is what has been sent, by family and labels.
	series map[string]*sent
	key    []byte // scratch
	lines  int    // of the chunk that is being written
	round  uint64
	// good counts the flushes without an error since the last one with; down says
	// that an outage was logged.
	good int
	down bool
	// long counts the series since the last log line whose lines are longer than a packet, packet bytes. longName is the
	// name of the first.
	long, packet int
	longName     string
}

// NewStatsd returns a sender for what metrics hold. It connects when
// [Statsd.Run] first has something to send.
func NewStatsd(options StatsdOptions, metrics *Metrics, logger *zap.Logger) (*Statsd, error) {
	s := &Statsd{
		options: options,
		metrics: metrics, milliseconds: metrics.Calls.unit.Seconds() * 1e3,
		logger: logger,
		errors: metrics.counter("sluice_statsd_errors_total", "Connections to the StatsD server that failed, packets that were lost, and series that have lines longer than a packet, which are not sent."),
		outlet: newOutlet(options.Network, options.Addr, !options.Dog),
		series: map[string]*sent{},
		packet: 1432, // fits an Ethernet frame
	}
	if options.Network != "udp" {
		s.packet = 8192
	}
	metrics.Rules.keepEnded()
	// Datadog's way to tell containers apart, which only its own servers understand.
	origin := statsd.WithoutOriginDetection()
	if options.Dog {
		origin = statsd.WithOriginDetection()
	}
	client, err := statsd.NewWithWriter(s.outlet,
		statsd.WithoutTelemetry(), // would send its own metrics
		statsd.WithoutClientSideAggregation(),
		statsd.WithWorkersCount(1),
		statsd.WithBufferFlushInterval(time.Hour), // it is flushed after each chunk
		statsd.WithMaxBytesPerPayload(s.packet),
		statsd.WithSenderQueueSize(chunkLines+1), // so that no line is dropped because there is no room
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

// Run sends each interval until ctx is done, and then once more; it returns at
// most four seconds after that. Call it once.
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
		s.tell(s.flush(flush))
		cancel()
	}
	_ = s.client.Close() // what could fail has been told
}

// tell logs where an outage begins and where it ends.
func (s *Statsd) tell(err error) {
	to := []zap.Field{zap.String("network", s.options.Network), zap.String("addr", s.options.Addr)}
	if err != nil {
		s.good = 0
		if !s.down {
			s.down = true
			code := StatsdUnavailable
			if s.options.Network == "udp" { // not each packet is refused
				code = StatsdNotListening
			}
			Raise(s.logger, code, s.options.Addr, append(to, zap.Error(err))...)
		}
		return
	}
	if s.good++; s.down && s.good >= endsOutage {
		s.down = false
		s.logger.Info("statsd: sending again", append(to, Clear(s.options.Addr, StatsdUnavailable, StatsdNotListening))...)
	}
}

// flush sends what changed since the last one, or returns why it ended early, or that packets of the last one were lost.
func (s *Statsd) flush(ctx context.Context) error {
	families, load := s.gather()
	refused, err := s.outlet.open(ctx)
	if err != nil {
		s.errors.Inc()
		return err
	}
	if refused != nil {
		s.errors.Inc()
	}
	defer s.reportLong()
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
			delete(s.series, key) // a rule that is gone
		}
	}
	return refused
}

// gather returns all metrics, and after which load of rules: series that end with a later one are not sent before.
func (s *Statsd) gather() (families []*dto.MetricFamily, load uint64) {
	for load = s.metrics.Rules.loaded(); ; {
		var err error
		if families, err = s.metrics.Registry.Gather(); err != nil {
			s.errors.Inc()
			s.logger.Debug("statsd: some metrics cannot be gathered", zap.Error(err))
		}
		was := load
		if load = s.metrics.Rules.loaded(); load == was {
			return families, load
		}
	}
}

// sendEnded sends the last of what series of rules counted that have ended. Series of the same names begin at 0 then.
func (s *Statsd) sendEnded(ended *endedSeries) error {
	families, err := s.metrics.gather(ended)
	if err != nil {
		return fmt.Errorf("gather the series of rules that ended: %w", err) // a bug
	}
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

// sendFamilies sends families, or only the counters of those that have ended.
func (s *Statsd) sendFamilies(families []*dto.MetricFamily, ended bool) error {
	for _, f := range families {
		for _, e := range statsdEntries(f) {
			if ended && e.kind != dto.MetricType_COUNTER {
				continue
			}
			for _, m := range f.GetMetric() {
				series := s.find(&e, m)
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
	return s.outlet.broken()
}

// find returns the series of an entry that m belongs to, a new one if it was
// never sent.
func (s *Statsd) find(e *statsdEntry, m *dto.Metric) *sent {
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

func (s *Statsd) newSeries(e *statsdEntry, m *dto.Metric) *sent {
	name, own := e.series(m, s.options.Tags)
	name = sanitizeName(name)
	tags := slices.Concat(s.options.Tags, own)
	if !s.options.Dog {
		return &sent{name: appendTags(name, tags)}
	}
	for i := range s.options.Mogrifiers {
		if renamed, more, ok := s.options.Mogrifiers[i].apply(name); ok {
			name, tags = renamed, append(tags, more...)
			break
		}
	}
	series := &sent{name: name}
	for _, t := range tags {
		series.tags = append(series.tags, dogTag(t))
	}
	return series
}

// send writes the lines of one series.
func (s *Statsd) send(series *sent, e *statsdEntry, m *dto.Metric) {
	var err error
	switch e.kind {
	case dto.MetricType_COUNTER:
		if grown := series.grow(whole(e.value(m))); grown > 0 {
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
	if err == nil || series.long { // a line that is longer than a packet is reported once
		return
	}
	s.errors.Inc()
	series.long = true
	if s.long++; s.long == 1 {
		s.longName = series.name
	}
}

// reportLong logs that there are more series whose lines are longer than a packet.
func (s *Statsd) reportLong() {
	if s.long > 0 {
		s.logger.Warn("statsd: metrics are not sent, because their lines are longer than a packet; shorten their names and tags, or send over TCP",
			zap.String("metric", fmt.Sprintf("%.200s", s.longName)), zap.Int("more", s.long-1), zap.Int("packet_bytes", s.packet))
		s.long = 0
	}
}

// scale is what a histogram's values are sent times. Times are sent in milliseconds, anything else
// as it is.
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
