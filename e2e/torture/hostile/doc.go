// Package hostile has clients that mean harm: HTTP/2 connections that hold memory,
// steal time or break the protocol, each as fast as it can. They build their own frames,
// because client libraries send no such frames.
//
// An attack only reports what it sent and what came back. Tests judge the server.
package hostile
