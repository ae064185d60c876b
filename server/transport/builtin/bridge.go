package builtin

import (
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// mostOfOther is how many bytes a message to another service than RateLimitService may have. Health and
// reflection are asked with names. A health check that watches keeps its name for as long as it likes.
const mostOfOther = 4 << 10

// messageOfOther returns the answer to a message that has more.
func messageOfOther(method string, size, most int) error {
	return status.Errorf(codes.ResourceExhausted, "the message has %d bytes: %s takes %d", size, method, most)
}

// bridge has services that are written for grpc-go answer over the built-in transport: health, reflection,
// and whatever else is registered. Each call of theirs has a goroutine; see bridged. Rate-limit
// requests, which the bridge knows of only for the sake of reflection, are answered without one.
//
// Services must be registered before the first connection.
type bridge struct {
	services map[string]*grpc.ServiceDesc
	methods  []bridgedMethod // by the numbers that h2 has for them
	others   *transport.Others
}

var _ reflection.GRPCServer = (*bridge)(nil)

// bridgedMethod is a method of a service. It has either a unary handler or a stream's.
type bridgedMethod struct {
	path   string
	server any
	unary  grpc.MethodHandler
	stream *grpc.StreamDesc
	// keep says which headers its calls keep, and mostKept how many bytes of them; see [h2.Method].
	keep     func(name []byte, size int) bool
	mostKept int
	// mostMessage is how many bytes a message may have, decompressed too; 0: as many as a request.
	mostMessage int
}

// methodShouldRateLimit is the number of the method that is registered first.
const methodShouldRateLimit = 0

// rateLimits describes RateLimitService, for reflection.
var rateLimits = grpc.ServiceDesc{
	ServiceName: answer.ServiceName, Methods: []grpc.MethodDesc{{MethodName: "ShouldRateLimit"}}, Metadata: "envoy/service/ratelimit/v3/rls.proto",
}

func newBridge(c *transport.Config) *bridge {
	b := &bridge{services: make(map[string]*grpc.ServiceDesc), others: transport.NewOthers(c)}
	var keep func([]byte, int) bool
	if c.Tracer != nil {
		keep = func(name []byte, size int) bool { return keepsHeader(c.TraceHeaders, name, size) }
	}
	b.register(&rateLimits, nil, keep, mostTraceHeaders, 0)
	if c.Quotas != nil {
		b.register(&quotas, nil, nil, 0, 0)
	}
	if c.Register != nil {
		c.Register(b, withMetadata{b})
	}
	return b
}

// RegisterService implements [grpc.ServiceRegistrar]. Calls have no metadata, which none of our
// services reads: a client could have each of many calls keep 128 KiB of it. For the same reason their
// messages are small.
func (b *bridge) RegisterService(d *grpc.ServiceDesc, server any) {
	b.register(d, server, nil, 0, mostOfOther)
}

// withMetadata registers services whose calls have metadata and large messages.
type withMetadata struct{ *bridge }

func (b withMetadata) RegisterService(d *grpc.ServiceDesc, server any) {
	b.register(d, server, func([]byte, int) bool { return true }, 0, 0)
}

func (b *bridge) register(d *grpc.ServiceDesc, server any, keep func([]byte, int) bool, mostKept, mostMessage int) {
	b.services[d.ServiceName] = d
	for _, m := range d.Methods {
		b.methods = append(b.methods, bridgedMethod{"/" + d.ServiceName + "/" + m.MethodName, server, m.Handler, nil, keep, mostKept, mostMessage})
	}
	for i := range d.Streams {
		s := &d.Streams[i]
		b.methods = append(b.methods, bridgedMethod{"/" + d.ServiceName + "/" + s.StreamName, server, nil, s, keep, mostKept, mostMessage})
	}
}

// h2Methods returns the methods as h2 has them.
func (b *bridge) h2Methods() []h2.Method {
	methods := make([]h2.Method, 0, len(b.methods))
	for i, m := range b.methods {
		methods = append(methods, h2.Method{
			Path: m.path, Streams: m.stream != nil && m.stream.ClientStreams, Keep: m.keep, MostKept: m.mostKept, MaxMessageBytes: m.mostMessage,
			Late: i == methodShouldRateLimit, // see answer.Exchange.Late
		})
	}
	return methods
}

// GetServiceInfo is for reflection.
func (b *bridge) GetServiceInfo() map[string]grpc.ServiceInfo {
	info := make(map[string]grpc.ServiceInfo, len(b.services))
	for name, d := range b.services {
		i := grpc.ServiceInfo{Metadata: d.Metadata}
		for _, m := range d.Methods {
			i.Methods = append(i.Methods, grpc.MethodInfo{Name: m.MethodName})
		}
		for _, s := range d.Streams {
			i.Methods = append(i.Methods, grpc.MethodInfo{Name: s.StreamName, IsClientStream: s.ClientStreams, IsServerStream: s.ServerStreams})
		}
		info[name] = i
	}
	return info
}

// unknown says why a path is that of no method, in grpc-go's words.
func (b *bridge) unknown(path string) string {
	name := strings.TrimPrefix(path, "/")
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return fmt.Sprintf("malformed method name: %q", path)
	}
	service, method := name[:i], name[i+1:]
	if b.services[service] == nil {
		return "unknown service " + service
	}
	return fmt.Sprintf("unknown method %s for service %s", method, service)
}
