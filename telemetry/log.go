package telemetry

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

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
		return nil, fmt.Errorf("log level %q: must be one of %s", level, strings.Join(slices.Sorted(maps.Keys(logLevels)), ", "))
	}
	enc := zap.NewProductionEncoderConfig()
	enc.TimeKey, enc.MessageKey, enc.LevelKey = "@timestamp", "@message", "level"
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.EncodeLevel = logrusLevel
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

// logrusLevel writes levels as envoyproxy/ratelimit does: warning, not warn.
func logrusLevel(l zapcore.Level, enc zapcore.PrimitiveArrayEncoder) {
	if l == zapcore.WarnLevel {
		enc.AppendString("warning")
		return
	}
	zapcore.LowercaseLevelEncoder(l, enc)
}
