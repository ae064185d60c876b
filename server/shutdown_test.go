package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestSlowClientDoesNotDelayOtherListeners checks that a listener completes its responses while a
// client of another listener does not read.
func TestSlowClientDoesNotDelayOtherListeners(t *testing.T) {
	begun, released := make(chan struct{}), make(chan struct{})
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	var all []*httpListener
	begin := func(wait chan struct{}) (url string, server *http.Server) {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			begun <- struct{}{}
			<-wait
			_, _ = io.WriteString(w, "all")
		})}
		all = append(all, &httpListener{server, l})
		go func() { _ = server.Serve(l) }()
		return "http://" + l.Addr().String(), server
	}
	request := func(url string) <-chan string {
		answer := make(chan string, 1)
		go func() {
			text := ""
			if response, err := http.Get(url); err == nil {
				b, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				text = string(b)
			}
			answer <- text
		}()
		<-begun
		return answer
	}
	slow, _ := begin(never)
	other, server := begin(released)
	server.RegisterOnShutdown(func() { close(released) })
	request(slow)
	answer := request(other)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if got := <-answer; got != "all" || ctx.Err() != nil {
			t.Errorf("the other listener's client gets %q, %v", got, ctx.Err())
		}
		cancel()
	}()
	shutDown(ctx, all, 24*time.Hour)
	<-ctx.Done()
	http.DefaultClient.CloseIdleConnections()
}
