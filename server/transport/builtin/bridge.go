package builtin

import (
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/quota"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/server/transport/h2"
)

// maxOtherMessageBytes limits messages of services other than RateLimitService. Requests of health
// and reflection contain only names. A health watch keeps its name in memory as long as the client
// likes.
const maxOtherMessageBytes = 4 << 10

// bridge serves services written for grpc-go: health, reflection, and others that are registered.
// Each of their calls has a goroutine; see bridgedCall. Rate-limit requests do not use the bridge,
// which describes their service for reflection only.
//
// Services must be registered before the first connection.
type bridge struct {
	services     map[string]*grpc.ServiceDesc
	methods      []bridgedMethod // indexed by h2.Call.Method
	interceptors *transport.Interceptors
}

var _ reflection.GRPCServer = (*bridge)(nil)

// bridgedMethod is a method of a service. Either unary or stream is set.
type bridgedMethod struct {
	path   string
	server any
	unary  grpc.MethodHandler
	stream *grpc.StreamDesc
	// keepHeader reports whether to keep a header, and maxKeptBytes limits their size; see
	// [h2.Method].
	keepHeader   func(name []byte, size int) bool
	maxKeptBytes int
	// maxMessageBytes limits messages; 0 is the limit of requests.
	maxMessageBytes int
	own             bool // a service of ours, whose handlers need no other clients
}

// methodShouldRateLimit is the index of the method that is registered first.
const methodShouldRateLimit = 0

// rateLimitServiceDesc describes RateLimitService, for reflection.
var rateLimitServiceDesc = grpc.ServiceDesc{
	ServiceName: answer.ServiceName, Methods: []grpc.MethodDesc{{MethodName: "ShouldRateLimit"}}, Metadata: "envoy/service/ratelimit/v3/rls.proto",
}

// quotaServiceDesc describes RateLimitQuotaService, for reflection.
var quotaServiceDesc = grpc.ServiceDesc{
	ServiceName: quota.ServiceName, Metadata: "envoy/service/rate_limit_quota/v3/rlqs.proto",
	Streams: []grpc.StreamDesc{{StreamName: quota.MethodName, ClientStreams: true, ServerStreams: true}},
}

func newBridge(c *transport.Config) *bridge {
	b := &bridge{services: make(map[string]*grpc.ServiceDesc), interceptors: transport.NewInterceptors(c)}
	var keep func([]byte, int) bool
	if c.Tracer != nil {
		keep = func(name []byte, size int) bool { return shouldKeepHeader(c.TraceHeaders, name, size) }
	}
	b.register(&rateLimitServiceDesc, nil, keep, maxTraceHeaderBytes, 0)
	if c.Quotas != nil {
		b.register(&quotaServiceDesc, nil, nil, 0, 0)
	}
	if c.Register != nil {
		c.Register(b, metadataRegistrar{b})
	}
	return b
}

// RegisterService implements [grpc.ServiceRegistrar]. Calls have no metadata: none of our services
// uses it, and a client could make the server keep 128 KiB of it for each of many calls. Messages
// have a small limit for the same reason.
func (b *bridge) RegisterService(d *grpc.ServiceDesc, server any) {
	b.register(d, server, nil, 0, maxOtherMessageBytes)
}

// metadataRegistrar registers services whose calls have metadata and large messages.
type metadataRegistrar struct{ *bridge }

func (b metadataRegistrar) RegisterService(d *grpc.ServiceDesc, server any) {
	b.register(d, server, func([]byte, int) bool { return true }, 0, 0)
}

func (b *bridge) register(d *grpc.ServiceDesc, server any, keep func([]byte, int) bool, maxKept, maxMessage int) {
	b.services[d.ServiceName] = d
	for _, m := range d.Methods {
		b.methods = append(b.methods, bridgedMethod{
			"/" + d.ServiceName + "/" + m.MethodName, server, m.Handler, nil, keep, maxKept, maxMessage, maxMessage == maxOtherMessageBytes,
		})
	}
	for i := range d.Streams {
		s := &d.Streams[i]
		b.methods = append(b.methods, bridgedMethod{
			"/" + d.ServiceName + "/" + s.StreamName, server, nil, s, keep, maxKept, maxMessage, maxMessage == maxOtherMessageBytes,
		})
	}
}

func (b *bridge) h2Methods() []h2.Method {
	methods := make([]h2.Method, 0, len(b.methods))
	for i, m := range b.methods {
		methods = append(methods, h2.Method{
			Path: m.path, ClientStreams: m.stream != nil && m.stream.ClientStreams, KeepHeader: m.keepHeader, MaxKeptBytes: m.maxKeptBytes, MaxMessageBytes: m.maxMessageBytes,
			AllowExpired: i == methodShouldRateLimit, // see answer.Exchange.DeadlinePassed
		})
	}
	return methods
}

// GetServiceInfo implements [reflection.GRPCServer].
func (b *bridge) GetServiceInfo() map[string]grpc.ServiceInfo {
	info := make(map[string]grpc.ServiceInfo, len(b.services))
	for name, d := range b.services {
		i := grpc.ServiceInfo{Metadata: d.Metadata}
		for _, m := range d.Methods {
			i.Methods = append(i.Methods, grpc.MethodInfo{Name: m.MethodName})
		}
		for _, s := range d.Streams {
			i.Methods = append(i.Methods, grpc.MethodInfo{
				Name: s.StreamName, IsClientStream: s.ClientStreams, IsServerStream: s.ServerStreams,
			})
		}
		info[name] = i
	}
	return info
}

// unknownMethodMessage returns the status message for an unknown path, with grpc-go's text.
func (b *bridge) unknownMethodMessage(path string) string {
	name := strings.TrimPrefix(path, "/")
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return fmt.Sprintf("malformed method name: %q", path)
	}
	service := name[:i]
	method := name[i+1:]
	if b.services[service] == nil {
		return "unknown service " + service
	}
	return fmt.Sprintf("unknown method %s for service %s", method, service)
}
