package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Panics counts and logs panics. Its methods may be called concurrently.
type Panics struct {
	counted prometheus.Counter
	logger  *zap.Logger

	mu      sync.Mutex
	next    time.Time // when a line may be logged again
	leftOut int       // panics since the last line
}

// panicsLogged is the least time between two lines. Each has a stack, and a client that has found a bug
// could fill a disk with them.
const panicsLogged = 10 * time.Second

// NewPanics returns what counts each panic by a metric, and logs one in ten seconds.
func NewPanics(counted prometheus.Counter, logger *zap.Logger) *Panics {
	return &Panics{counted: counted, logger: logger}
}

// Caught takes in a panic, which is a bug of ours. A deferred function calls it with what recover returned.
//
// The line says where it was, and how many panics had none since the last line. The value of a panic may
// have parts of a request, so above debug only its type is logged. Go's own errors, such as an index out of
// range, have only numbers and types, and are logged in full.
func (p *Panics) Caught(thrown any) {
	p.counted.Inc()
	leftOut, log := p.mayLog()
	if !log {
		return
	}
	what, others := zap.Skip(), zap.Skip()
	if err, ok := thrown.(error); ok {
		if own, ok := errors.AsType[runtime.Error](err); ok {
			what = zap.String("error", own.Error())
		}
	}
	if leftOut > 0 {
		others = zap.Int("left_out", leftOut)
	}
	p.logger.Error("panic in a request; more within ten seconds are only counted",
		zap.String("type", fmt.Sprintf("%T", thrown)), what, others, zap.ByteString("stack", debug.Stack()))
	p.logger.Debug("panic in a request: what was thrown", zap.Any("panic", thrown))
}

// mayLog reports whether a panic is logged, and how many were not since the last one that was.
func (p *Panics) mayLog() (leftOut int, log bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now() //nolint:forbidigo // how often a line comes decides nothing
	if now.Before(p.next) {
		p.leftOut++
		return 0, false
	}
	leftOut, p.leftOut, p.next = p.leftOut, 0, now.Add(panicsLogged)
	return leftOut, true
}

// recoverUnary answers INTERNAL if a method panics. grpc-go would end the process.
func recoverUnary(panics *Panics) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
		defer recoverCall(panics, &err)
		return handle(ctx, request)
	}
}

// recoverStreams does the same for streams.
func recoverStreams(panics *Panics) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
		defer recoverCall(panics, &err)
		return handle(srv, stream)
	}
}

// recoverCall is deferred by a call of another service than RateLimitService.
func recoverCall(panics *Panics, err *error) {
	if p := recover(); p != nil {
		panics.Caught(p)
		*err = status.Error(codes.Internal, "internal error")
	}
}

// recovering answers 500 if h panics. Without it, net/http would log the value of the panic.
func recovering(h http.Handler, panics *Panics) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p) //nolint:forbidigo // as above
			default:
				panics.Caught(p)
				http.Error(w, "Internal Server Error", http.StatusInternalServerError)
			}
		}()
		h.ServeHTTP(w, r)
	})
}
