// Package server answers envoy.service.ratelimit.v3 over gRPC and HTTP. Here are its listeners and its life:
// a [Server] opens the ports, is healthy or not, serves, and drains. The rooms below have the rest.
//
// # The way of a request
//
//	Envoy
//	  |  TCP or a unix socket
//	  v
//	server                connections: an idle connection makes room if there are too many
//	  |
//	  v
//	server/access         the handshake: TLS; whose certificate, so which domains
//	  |
//	  v
//	server/transport/builtin
//	  |                   frames to a message, by package h2: within the bounds of server/transport
//	  |                   (or server/transport/grpcgo, a conventional server of grpc-go)
//	  v
//	server/answer         Handler.Begin: counted, the clock is read
//	  |                   Service.Begin: decoded; may this client ask for that domain?
//	  |                   planned by package descriptors: which counters, how many hits
//	  |                   decided by package limiter, or later by a store
//	  |                   Service.Finish: statuses, metrics, the reply's bytes
//	  |                   Handler.Finish: the error's status; spans and logs told
//	  v
//	server/transport/builtin
//	  |                   the reply, at once, or held until its turn: frames; one write for many replies
//	  |
//	  v
//	Envoy
//
// One goroutine does all of it, from the read to the write, where the decision is made in memory. No lock is
// taken but the connection's, whose turn it is, and nothing is allocated. With a store, the goroutine goes on
// with other calls after Service.Begin, and the store leaves the call in the connection's inbox.
//
// Health, reflection and whatever else [Options].Register adds are written for grpc-go. They come the same way
// as far as the transport, which gives each call a goroutine there.
//
// # Over HTTP
//
// /json decodes JSON into the same bytes, and calls the same Handler. /healthcheck, the metrics and profiles are served
// here. The rest of the debug listener is package admin: the API for operators. Package web has the bounds that both share,
// and package client the client's side, for the commands.
//
// # The end
//
// [Server.Run] ends when its context does: health turns first, so that clients go elsewhere while calls are
// still answered; after the drain delay gRPC ends, with the calls in flight; last, the listeners that operators
// watch.
package server
