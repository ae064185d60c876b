package builtin

import (
	"golang.org/x/net/http2"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// The paths of streams, which the bridge has over the built-in transport.
const (
	watchPath   = "/grpc.health.v1.Health/Watch"
	reflectPath = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
)

// watch is the request of a watch.
func (s *script) watch(service string) []byte {
	return prefixed(0, marshal(s.tb, &grpc_health_v1.HealthCheckRequest{Service: service}))
}

// question is a message to reflection, with a short answer or a long one.
func (s *script) question(long bool) []byte {
	q := &grpc_reflection_v1.ServerReflectionRequest{}
	if q.MessageRequest = (&grpc_reflection_v1.ServerReflectionRequest_ListServices{}); long {
		q.MessageRequest = &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: answer.ServiceName}
	}
	return prefixed(0, marshal(s.tb, q))
}

// streams are scripts of calls that have several messages.
var streams = []struct {
	name  string
	plays func(s *script)
}{
	{"watches", func(s *script) {
		id := uint32(1)
		for _, service := range []string{"", answer.ServiceName, "nobody"} {
			s.headers(id, false, ordinary(":path", watchPath)...)
			s.data(id, true, s.watch(service))
			id += 2
		}
		s.headers(id, false, ordinary(":path", watchPath, "grpc-timeout", "1S")...)
		s.data(id, false, s.watch("")[:3])
		s.data(id, true, s.watch("")[3:])
		s.frame(s.write.WriteRSTStream(1, http2.ErrCodeCancel))
		s.ask(id + 2)
		s.headers(id+4, true, ordinary(":path", watchPath)...)
		s.headers(id+6, false, ordinary(":path", watchPath)...)
		s.data(id+6, true, prefixed(0, []byte("\xff")))
	}},
	{"questions", func(s *script) {
		s.headers(1, false, ordinary(":path", reflectPath)...)
		for _, long := range []bool{false, true, true, false} {
			s.data(1, false, s.question(long))
		}
		q := s.question(true)
		s.data(1, false, append(append([]byte(nil), q...), q[:7]...))
		s.data(1, false, q[7:])
		s.data(1, true, nil)
		s.headers(3, true, ordinary(":path", reflectPath)...)
		s.headers(5, false, ordinary(":path", reflectPath)...)
		s.data(5, true, append(append([]byte(nil), q...), q...))
		s.headers(7, false, ordinary(":path", reflectPath)...)
		s.data(7, true, q[:len(q)-1])
		s.headers(9, false, ordinary(":path", reflectPath)...)
		s.data(9, false, prefixed(0, []byte("\xff")))
		s.ask(11)
	}},
	{"questions that are compressed", func(s *script) {
		q := s.question(true)
		s.headers(1, false, ordinary(":path", reflectPath, "grpc-encoding", "gzip")...)
		s.data(1, false, prefixed(1, zipped(q[5:])))
		s.data(1, false, q)
		s.data(1, true, prefixed(1, []byte("no gzip")))
		s.headers(3, false, ordinary(":path", reflectPath)...)
		s.data(3, false, prefixed(1, zipped(q[5:])))
	}},
	{"answers that wait for a window", func(s *script) {
		s.frame(s.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
		s.headers(1, false, ordinary(":path", reflectPath)...)
		s.data(1, false, s.question(true))
		s.data(1, true, s.question(false))
		for range 5 {
			s.update(1, 100)
		}
		s.update(1, 1<<20)
		s.ask(3)
		s.update(3, 100)
	}},
}
