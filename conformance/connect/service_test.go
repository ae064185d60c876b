// Package conformance runs connectrpc/conformance with sluice's transports.
package conformance

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	pb "github.com/sluice-ratelimit/sluice/conformance/connect/conformancev1"
)

const serviceName = "connectrpc.conformance.v1.ConformanceService"

// serviceDesc is the suite's ConformanceService, which is documented in its .proto: each request
// defines the response. Unimplemented is missing, because the suite expects that.
var serviceDesc = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Unary",
		Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			in := new(pb.UnaryRequest)
			if err := decode(in); err != nil {
				return nil, err
			}
			if intercept == nil {
				return unary(ctx, in)
			}
			return intercept(ctx, in, &grpc.UnaryServerInfo{FullMethod: "/" + serviceName + "/Unary"}, func(ctx context.Context, _ any) (any, error) {
				return unary(ctx, in)
			})
		},
	}},
	Streams: []grpc.StreamDesc{
		{StreamName: "ServerStream", Handler: serverStream, ServerStreams: true},
		{StreamName: "ClientStream", Handler: clientStream, ClientStreams: true},
		{StreamName: "BidiStream", Handler: bidiStream, ServerStreams: true, ClientStreams: true},
	},
}

func unary(ctx context.Context, in *pb.UnaryRequest) (*pb.UnaryResponse, error) {
	requests, err := appendAny(nil, in)
	if err != nil {
		return nil, err
	}
	d := in.GetResponseDefinition()
	if err := errors.Join(grpc.SetHeader(ctx, toMetadata(d.GetResponseHeaders())), grpc.SetTrailer(ctx, toMetadata(d.GetResponseTrailers()))); err != nil {
		return nil, err
	}
	payload, err := answer(ctx, d, requests)
	return &pb.UnaryResponse{Payload: payload}, err
}

func clientStream(_ any, stream grpc.ServerStream) error {
	var (
		d        *pb.UnaryResponseDefinition
		requests []*anypb.Any
	)
	for {
		in := new(pb.ClientStreamRequest)
		err := stream.RecvMsg(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(requests) == 0 {
			d = in.GetResponseDefinition()
		}
		if requests, err = appendAny(requests, in); err != nil {
			return err
		}
	}
	if err := stream.SendHeader(toMetadata(d.GetResponseHeaders())); err != nil {
		return err
	}
	stream.SetTrailer(toMetadata(d.GetResponseTrailers()))
	payload, err := answer(stream.Context(), d, requests)
	if err != nil {
		return err
	}
	return stream.SendMsg(&pb.ClientStreamResponse{Payload: payload})
}

// answer returns the response for a definition, which may be nil.
func answer(ctx context.Context, d *pb.UnaryResponseDefinition, requests []*anypb.Any) (*pb.ConformancePayload, error) {
	info := requestInfo(ctx, requests)
	if err := wait(ctx, d.GetResponseDelayMs()); err != nil {
		return nil, err
	}
	if e := d.GetError(); e != nil {
		return nil, toStatus(e, info)
	}
	return &pb.ConformancePayload{Data: d.GetResponseData(), RequestInfo: info}, nil
}

func serverStream(_ any, stream grpc.ServerStream) error {
	in := new(pb.ServerStreamRequest)
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	requests, err := appendAny(nil, in)
	if err != nil {
		return err
	}
	s := answers{stream: stream, d: in.GetResponseDefinition(), message: func(p *pb.ConformancePayload) proto.Message {
		return &pb.ServerStreamResponse{Payload: p}
	}}
	if err := s.begin(); err != nil {
		return err
	}
	return s.finish(requests)
}

func bidiStream(_ any, stream grpc.ServerStream) error {
	s := answers{stream: stream, message: func(p *pb.ConformancePayload) proto.Message {
		return &pb.BidiStreamResponse{Payload: p}
	}}
	var requests []*anypb.Any // requests since the last response
	for first, alternately := true, false; ; first = false {
		in := new(pb.BidiStreamRequest)
		err := stream.RecvMsg(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if requests, err = appendAny(requests, in); err != nil {
			return err
		}
		if first {
			alternately, s.d = in.GetFullDuplex(), in.GetResponseDefinition()
			if err := s.begin(); err != nil {
				return err
			}
		}
		if !alternately {
			continue
		}
		if s.sent == len(s.d.GetResponseData()) {
			break
		}
		info := &pb.ConformancePayload_RequestInfo{Requests: requests}
		if s.sent == 0 {
			info = requestInfo(stream.Context(), requests)
		}
		if err := s.send(info); err != nil {
			return err
		}
		requests = nil
	}
	return s.finish(requests)
}

// answers are the responses of a stream.
type answers struct {
	stream  grpc.ServerStream
	d       *pb.StreamResponseDefinition // may be nil
	message func(*pb.ConformancePayload) proto.Message
	sent    int
}

func (s *answers) begin() error {
	s.stream.SetTrailer(toMetadata(s.d.GetResponseTrailers()))
	return s.stream.SendHeader(toMetadata(s.d.GetResponseHeaders()))
}

// send sends the next response.
func (s *answers) send(info *pb.ConformancePayload_RequestInfo) error {
	if err := wait(s.stream.Context(), s.d.GetResponseDelayMs()); err != nil {
		return err
	}
	data := s.d.GetResponseData()[s.sent]
	s.sent++
	return s.stream.SendMsg(s.message(&pb.ConformancePayload{Data: data, RequestInfo: info}))
}

// finish sends the remaining responses, and returns the requested error.
func (s *answers) finish(requests []*anypb.Any) error {
	info := requestInfo(s.stream.Context(), requests)
	for s.sent < len(s.d.GetResponseData()) {
		if s.sent > 0 {
			info = nil
		}
		if err := s.send(info); err != nil {
			return err
		}
	}
	if s.sent > 0 {
		info = nil
	}
	return toStatus(s.d.GetError(), info)
}

// wait waits for the given time, or until the call has ended.
func wait(ctx context.Context, milliseconds uint32) error {
	timer := time.NewTimer(time.Duration(milliseconds) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func appendAny(all []*anypb.Any, m proto.Message) ([]*anypb.Any, error) {
	packed, err := anypb.New(m)
	return append(all, packed), err
}

// requestInfo describes the received call.
func requestInfo(ctx context.Context, requests []*anypb.Any) *pb.ConformancePayload_RequestInfo {
	info := &pb.ConformancePayload_RequestInfo{Requests: requests}
	if deadline, ok := ctx.Deadline(); ok {
		info.TimeoutMs = new(max(0, time.Until(deadline).Milliseconds()))
	}
	received, _ := metadata.FromIncomingContext(ctx) // never missing
	for name, values := range received {
		if strings.HasSuffix(name, binarySuffix) {
			for i, v := range values {
				values[i] = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
		}
		info.RequestHeaders = append(info.RequestHeaders, &pb.Header{Name: name, Value: values})
	}
	return info
}

// binarySuffix ends the names of headers with binary values, which are base64 on the wire.
const binarySuffix = "-bin"

func toMetadata(headers []*pb.Header) metadata.MD {
	md := metadata.MD{}
	for _, h := range headers {
		for _, v := range h.GetValue() {
			if strings.HasSuffix(strings.ToLower(h.GetName()), binarySuffix) {
				// A value that is not base64 is sent unchanged.
				if b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "=")); err == nil {
					v = string(b)
				}
			}
			md.Append(h.GetName(), v)
		}
	}
	return md
}

// toStatus returns the requested error, or nil if e is nil. info, if not nil, is added to its
// details.
func toStatus(e *pb.Error, info *pb.ConformancePayload_RequestInfo) error {
	if e == nil {
		return nil
	}
	details := e.GetDetails()
	if info != nil {
		var err error
		if details, err = appendAny(details, info); err != nil {
			return err
		}
	}
	return status.ErrorProto(&statuspb.Status{Code: int32(e.GetCode()), Message: e.GetMessage(), Details: details})
}
