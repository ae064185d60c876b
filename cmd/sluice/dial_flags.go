package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/top"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/client"
)

// dialFlags configures TLS of the connection to a running service.
type dialFlags struct {
	TLS        bool   `help:"Use TLS. Implied by the other TLS flags."`
	CACert     string `name:"ca-cert" type:"existingfile" placeholder:"FILE" help:"CA certificates (PEM) that verify the certificate of the service. Default: those of the system."`
	Cert       string `type:"existingfile" placeholder:"FILE" help:"Client certificate (PEM)."`
	Key        string `type:"existingfile" placeholder:"FILE" help:"Private key of --cert."`
	ServerName string `placeholder:"NAME" help:"Name that the certificate of the service must contain. Default: the host of the address."`
}

func (f *dialFlags) check() error {
	if (f.Cert == "") != (f.Key == "") {
		return errors.New("--cert and --key must be set together")
	}
	return nil
}

func (f *dialFlags) usesTLS() bool {
	return f.TLS || f.CACert != "" || f.Cert != "" || f.ServerName != ""
}

// tls returns the TLS configuration of the connection, nil for plaintext.
func (f *dialFlags) tls() (*access.TLS, error) {
	if !f.usesTLS() {
		return nil, nil
	}
	secure, err := access.ClientTLS(access.TLSOptions{Cert: f.Cert, Key: f.Key, CA: f.CACert, PeerName: f.ServerName})
	if err != nil {
		return nil, flagError(err, "--cert", f.Cert, "--key", f.Key, "--ca-cert", f.CACert)
	}
	return secure, nil
}

// debugClientFlags configures a client of a debug listener.
type debugClientFlags struct {
	dialFlags `embed:""`

	TokenFile string `type:"existingfile" placeholder:"FILE" help:"File that contains one token of the service's --debug-token-file."`
}

// debugClient returns a client of the debug listener at addr.
func (f *debugClientFlags) debugClient(addr string) (*client.Debug, error) {
	secure, err := f.tls()
	if err != nil {
		return nil, err
	}
	c := &client.Debug{Addr: addr, TLS: secure, Timeout: debugTimeout}
	if f.TokenFile == "" {
		return c, nil
	}
	text, err := os.ReadFile(f.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	c.Token = strings.TrimSpace(string(text))
	if len(c.Token) < access.MinTokenLength || len(c.Token) > access.MaxTokenLength ||
		strings.ContainsAny(c.Token, " \t\r\n") {
		return nil, fmt.Errorf("--token-file: %s: must contain one token of %d to %d characters, and nothing else",
			f.TokenFile, access.MinTokenLength, access.MaxTokenLength)
	}
	return c, nil
}

// replicasFlags are the flags of a client of the debug listeners of several replicas.
type replicasFlags struct {
	Addr []string `default:"127.0.0.1:6070" placeholder:"ADDR" help:"Debug listeners of running services, separated by commas. A DNS name with several addresses stands for all of them."`

	debugClientFlags `embed:""`
}

func (f *replicasFlags) Validate() error {
	for i, addr := range f.Addr {
		parsed, err := parseAddress(addr)
		if err != nil {
			return fmt.Errorf("--addr: %w", err)
		}
		f.Addr[i] = parsed
	}
	return f.check()
}

func (f *replicasFlags) service() *top.Service {
	return &top.Service{
		Addrs: f.Addr, Dial: f.dial, Lookup: net.DefaultResolver.LookupNetIP, Explain: reportText,
	}
}

// dial returns a client of the debug listener at addr. If the host of --addr was replaced by one of
// its addresses, name is that host.
func (f *replicasFlags) dial(addr, name string) (*client.Debug, error) {
	flags := f.debugClientFlags
	if flags.usesTLS() && flags.ServerName == "" {
		flags.ServerName = name
	}
	return flags.debugClient(addr)
}
