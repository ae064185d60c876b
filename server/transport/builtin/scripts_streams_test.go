package builtin

import (
	"golang.org/x/net/http2"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// The paths of streams.
const (
	watchPath   = "/grpc.health.v1.Health/Watch"
	reflectPath = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
)

// addWatch returns the request of a health watch.
func (s *script) addWatch(service string) []byte {
	return prefixed(0, marshal(s.tb, &grpc_health_v1.HealthCheckRequest{Service: service}))
}

// reflectionRequest returns a reflection request with a short or long response.
func (s *script) reflectionRequest(long bool) []byte {
	q := &grpc_reflection_v1.ServerReflectionRequest{}
	if q.MessageRequest = (&grpc_reflection_v1.ServerReflectionRequest_ListServices{}); long {
		q.MessageRequest = &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: answer.ServiceName}
	}
	return prefixed(0, marshal(s.tb, q))
}

// streamScripts are scripts of calls with several messages.
var streamScripts = []struct {
	name  string
	plays func(s *script)
}{
	{"watches", func(s *script) {
		id := uint32(1)
		for _, service := range []string{"", answer.ServiceName, "nobody"} {
			s.addHeaders(id, false, requestFields(":path", watchPath)...)
			s.addData(id, true, s.addWatch(service))
			id += 2
		}
		s.addHeaders(id, false, requestFields(":path", watchPath, "grpc-timeout", "1S")...)
		s.addData(id, false, s.addWatch("")[:3])
		s.addData(id, true, s.addWatch("")[3:])
		s.addFrame(s.write.WriteRSTStream(1, http2.ErrCodeCancel))
		s.addCall(id + 2)
		s.addHeaders(id+4, true, requestFields(":path", watchPath)...)
		s.addHeaders(id+6, false, requestFields(":path", watchPath)...)
		s.addData(id+6, true, prefixed(0, []byte("\xff")))
	}},
	{"questions", func(s *script) {
		s.addHeaders(1, false, requestFields(":path", reflectPath)...)
		for _, long := range []bool{false, true, true, false} {
			s.addData(1, false, s.reflectionRequest(long))
		}
		q := s.reflectionRequest(true)
		s.addData(1, false, append(append([]byte(nil), q...), q[:7]...))
		s.addData(1, false, q[7:])
		s.addData(1, true, nil)
		s.addHeaders(3, true, requestFields(":path", reflectPath)...)
		s.addHeaders(5, false, requestFields(":path", reflectPath)...)
		s.addData(5, true, append(append([]byte(nil), q...), q...))
		s.addHeaders(7, false, requestFields(":path", reflectPath)...)
		s.addData(7, true, q[:len(q)-1])
		s.addHeaders(9, false, requestFields(":path", reflectPath)...)
		s.addData(9, false, prefixed(0, []byte("\xff")))
		s.addCall(11)
	}},
	{"questions that are compressed", func(s *script) {
		q := s.reflectionRequest(true)
		s.addHeaders(1, false, requestFields(":path", reflectPath, "grpc-encoding", "gzip")...)
		s.addData(1, true, prefixed(1, q[5:]))
		s.addHeaders(3, false, requestFields(":path", reflectPath)...)
		s.addData(3, false, prefixed(1, q[5:]))
	}},
	{"answers that wait for a window", func(s *script) {
		s.addFrame(s.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
		s.addHeaders(1, false, requestFields(":path", reflectPath)...)
		s.addData(1, false, s.reflectionRequest(true))
		s.addData(1, true, s.reflectionRequest(false))
		for range 5 {
			s.addWindowUpdate(1, 100)
		}
		s.addWindowUpdate(1, 1<<20)
		s.addCall(3)
		s.addWindowUpdate(3, 100)
	}},
}
