// Package hostile is clients that mean harm: connections over HTTP/2 that hold
// memory, steal time or break the protocol, each as fast as it can. They speak in
// frames of their own making, since a client library would not let them.
//
// What a server does about them is for tests to say: an attack only reports what it
// sent and what came back.
package hostile
