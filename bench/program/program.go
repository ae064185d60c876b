// Package program contains the main functions of this module's programs.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
)

// Main implements a program's main function: it calls run with the arguments and a context that
// ends at SIGINT or SIGTERM. If run fails, it prints the error after the program's name and exits
// with 1. flag.ErrHelp is not an error.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Serve implements the main function of a service. It listens and prints the address. serve must
// run until ctx ends, and close the listener.
func Serve(name string, serve func(ctx context.Context, listener net.Listener) error) {
	Main(name, func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		flags := flag.NewFlagSet(name, flag.ContinueOnError)
		flags.SetOutput(stderr)
		addr := flags.String("addr", "127.0.0.1:0", "listen on this `host:port`; port 0 picks a free one and prints it")
		if err := flags.Parse(args); err != nil {
			return err
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(stdout, "listening on", listener.Addr()); err != nil {
			return err
		}
		return serve(ctx, listener)
	})
}
