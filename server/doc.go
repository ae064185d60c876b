// Package server serves envoy.service.ratelimit.v3 over gRPC and HTTP. It contains the listeners
// and the lifecycle of a [Server]: it opens the ports, reports its health, serves, and drains. The
// subpackages authenticate clients and handle their requests.
//
// # The path of a request
//
//	Envoy
//	  |  TCP or a Unix socket
//	  v
//	server                    boundedListener: closes an idle connection if there are too many
//	  |
//	  v
//	server/access             TLS handshake; domains that the client may request, by its certificate
//	  |
//	  v
//	server/transport/builtin  frames to a message, by package h2, within the bounds of server/transport
//	  |                       (or server/transport/grpcgo, a conventional grpc-go server)
//	  v
//	server/answer             Handler.Begin: counts the request, reads the clock
//	  |                       Service.Begin: decodes, checks that the client may request the domain,
//	  |                       plans by package descriptors (which counters, how many hits),
//	  |                       decides by package limiter, or asynchronously by a store
//	  |                       Service.Finish: statuses, metrics, encoded reply
//	  |                       Handler.Finish: status of an error, spans and logs
//	  v
//	server/transport/builtin  the reply, sent immediately or after its delay: frames, one write for many replies
//	  |
//	  v
//	Envoy
//
// If the counters are in memory, a single goroutine does all of this, from the read to the write.
// It only holds the lock of the connection and does not allocate. With a store, the goroutine
// continues with other calls after Service.Begin, and the store queues the decision for the
// connection.
//
// Health, reflection and the services of [Options].Register are grpc-go services. The built-in
// transport runs each of their calls in a goroutine.
//
// # HTTP
//
// /json converts JSON to the same bytes and calls the same Handler. This package also serves
// /healthcheck, the metrics and profiles. The other pages of the debug listener are in package
// admin, the API for operators. Package web contains the bounds that both share, and package client
// the client for the commands.
//
// # Shutdown
//
// [Server.Run] shuts down when its context is done. First the server turns unhealthy, so that
// clients use other servers while calls are still answered. After the drain delay it ends gRPC,
// waiting for calls in flight, and last the listeners for operators.
package server
