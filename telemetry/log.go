package telemetry

import (
	"fmt"
	"io"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// LogLevels are the accepted levels, those of envoyproxy/ratelimit; trace is
// debug and panic is fatal here.
var LogLevels = []string{"panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"}

// NewLogger returns a logger that writes lines to w: format json has the keys and
// levels of envoyproxy/ratelimit, @timestamp, level and @message; text is for
// people. Level is one of [LogLevels] in any letter case.
func NewLogger(w io.Writer, level, format string) (*zap.Logger, error) {
	var l zapcore.Level
	switch strings.ToLower(level) {
	case "panic", "fatal":
		l = zapcore.FatalLevel
	case "error":
		l = zapcore.ErrorLevel
	case "warn", "warning":
		l = zapcore.WarnLevel
	case "info":
		l = zapcore.InfoLevel
	case "debug", "trace":
		l = zapcore.DebugLevel
	default:
		return nil, fmt.Errorf("log level %q: must be one of %s", level, strings.Join(LogLevels, ", "))
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

// logrusLevel writes levels as envoyproxy/ratelimit's logs have them: warning, not
// warn.
func logrusLevel(l zapcore.Level, enc zapcore.PrimitiveArrayEncoder) {
	if l == zapcore.WarnLevel {
		enc.AppendString("warning")
		return
	}
	zapcore.LowercaseLevelEncoder(l, enc)
}
