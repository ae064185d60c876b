// Package hostile implements malicious clients: HTTP/2 connections that consume memory or CPU time,
// or violate the protocol, each as fast as possible. They build their own frames, because client
// libraries do not send such frames.
//
// An attack only reports what it sent and received. Tests check the server.
package hostile
