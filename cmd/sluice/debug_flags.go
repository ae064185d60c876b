package main

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/server"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/daemon"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// debugFlags configures access to the debug listener from other machines.
type debugFlags struct {
	Cert      string   `name:"debug-tls-cert" placeholder:"FILE" help:"Server certificate and chain (PEM). Enables TLS on the debug listener, which then rejects plaintext."`
	Key       string   `name:"debug-tls-key" placeholder:"FILE" help:"Private key of --debug-tls-cert."`
	TokenFile string   `name:"debug-token-file" placeholder:"FILE" help:"File with tokens that authenticate clients on other machines, one per line: RIGHT NAME TOKEN. RIGHT is read, or write, which also allows changes such as resetting counters. NAME appears in the log."`
	ClientCA  string   `name:"debug-client-ca" placeholder:"FILE" help:"CA certificates (PEM) that verify the certificates of clients of the debug listener."`
	Allow     []string `name:"debug-allow" sep:"none" placeholder:"NAME=RIGHT" help:"Right of the clients whose certificate contains NAME, a DNS name or URI as in --grpc-allow: read or write. May be repeated."`

	clients *access.AllowList // parsed from Allow by check; nil without --debug-allow
}

func (f *debugFlags) check() error {
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return errors.New("--debug-tls-cert and --debug-tls-key must be set together")
	case f.TokenFile != "" && f.Cert == "":
		return errors.New("--debug-token-file requires --debug-tls-cert: without TLS the tokens can be intercepted")
	case f.ClientCA != "" && f.Cert == "":
		return errors.New("--debug-client-ca requires --debug-tls-cert: clients only present certificates over TLS")
	case (f.ClientCA == "") != (len(f.Allow) == 0):
		return errors.New("--debug-client-ca and --debug-allow must be set together: one verifies certificates, the other grants rights to their names")
	case len(f.Allow) == 0:
		return nil
	}
	var err error
	if f.clients, err = access.ParseRights(f.Allow); err != nil {
		return fmt.Errorf("--debug-allow: %w", err)
	}
	return nil
}

// configureTLS sets the TLS configuration and the access rights of the debug listener in o. The
// files are reloaded in group until ctx ends.
func (f *debugFlags) configureTLS(
	ctx context.Context, group *errgroup.Group, o *server.Options, m *telemetry.Metrics, logger *zap.Logger,
) error {
	if f.Cert == "" {
		return nil
	}
	var err error
	o.DebugTLS, err = access.ServerTLS(access.TLSOptions{
		Cert: f.Cert, Key: f.Key, CA: f.ClientCA, PeerOptional: true,
		Use: "debug", Metrics: m.TLS("debug"), Logger: logger,
	})
	if err != nil {
		return flagError(err, "--debug-tls-cert", f.Cert, "--debug-tls-key", f.Key, "--debug-client-ca", f.ClientCA)
	}
	group.Go(daemon.Task(ctx, o.DebugTLS.Run))
	o.DebugRights.Clients = f.clients
	if f.TokenFile == "" {
		return nil
	}
	o.DebugRights.Tokens, err = access.ReadTokens(access.TokenOptions{
		File: f.TokenFile, Metrics: &m.TokenFile, Logger: logger,
	})
	if err != nil {
		return fmt.Errorf("--debug-token-file: %w", err)
	}
	group.Go(daemon.Task(ctx, o.DebugRights.Tokens.Run))
	return nil
}
