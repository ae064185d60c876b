package telemetry

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logLevels are the accepted levels, those of envoyproxy/ratelimit.
var logLevels = map[string]zapcore.Level{
	"panic": zapcore.FatalLevel, "fatal": zapcore.FatalLevel, "error": zapcore.ErrorLevel, "warn": zapcore.WarnLevel,
	"warning": zapcore.WarnLevel, "info": zapcore.InfoLevel, "debug": zapcore.DebugLevel, "trace": zapcore.DebugLevel,
}

// NewLogger returns a logger that writes lines to w. Format json has the keys and levels of
// envoyproxy/ratelimit: @timestamp, level and @message; format text is for people. Level and format
// are case-insensitive.
func NewLogger(w io.Writer, level, format string) (*zap.Logger, error) {
	l, ok := logLevels[strings.ToLower(level)]
	if !ok {
		return nil, fmt.Errorf("log level %q: must be one of %s", level,
			strings.Join(slices.Sorted(maps.Keys(logLevels)), ", "))
	}
	enc := zap.NewProductionEncoderConfig()
	enc.TimeKey = "@timestamp"
	enc.MessageKey = "@message"
	enc.LevelKey = "level"
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.EncodeLevel = func(l zapcore.Level, enc zapcore.PrimitiveArrayEncoder) { enc.AppendString(levelName(l)) }
	var encoder zapcore.Encoder
	switch strings.ToLower(format) {
	case "json":
		encoder = zapcore.NewJSONEncoder(enc)
	case "text":
		enc.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(enc)
	default:
		return nil, fmt.Errorf("log format %q: must be json or text", format)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), l)), nil
}

// Sampled returns a logger that passes on the first lines of each message in an interval, and after
// that every thereafter-th one, or none if thereafter is 0. Unlike zap's sampler it continues to
// log after the clock was set back.
func Sampled(logger *zap.Logger, interval time.Duration, first, thereafter uint64) *zap.Logger {
	s := &sampler{interval: int64(interval), first: first, thereafter: thereafter}
	return logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return sampledCore{core, s} }))
}

// Rare returns a logger that passes on each message once in ten seconds. It is for messages that
// clients can cause.
func Rare(logger *zap.Logger) *zap.Logger { return Sampled(logger, 10*time.Second, 1, 0) }

// sampler counts lines by message. The messages are those of the program, so they are few.
type sampler struct {
	interval          int64 // in nanoseconds
	first, thereafter uint64
	counts            sync.Map // from messages to *sampleCount
}

type sampleCount struct {
	ends  atomic.Int64 // end of the interval, in nanoseconds since 1970
	lines atomic.Uint64
}

// passes counts a line, and reports whether to log it.
func (s *sampler) passes(message string, at time.Time) bool {
	known, ok := s.counts.Load(message)
	if !ok {
		known, _ = s.counts.LoadOrStore(message, new(sampleCount))
	}
	c, _ := known.(*sampleCount)
	now := at.UnixNano()
	ends := c.ends.Load()
	// If the interval ends much later than now, the clock was set back.
	if (now >= ends || now < ends-2*s.interval) && c.ends.CompareAndSwap(ends, now+s.interval) {
		c.lines.Store(0)
	}
	n := c.lines.Add(1)
	return n <= s.first || s.thereafter > 0 && (n-s.first)%s.thereafter == 0
}

// sampledCore is a core that receives a sample of the lines.
type sampledCore struct {
	zapcore.Core

	sampler *sampler
}

// With implements [zapcore.Core].
func (c sampledCore) With(fields []zapcore.Field) zapcore.Core {
	return sampledCore{c.Core.With(fields), c.sampler}
}

// Check implements [zapcore.Core].
func (c sampledCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(entry.Level) || !c.sampler.passes(entry.Message, entry.Time) {
		return checked
	}
	return c.Core.Check(entry, checked)
}
