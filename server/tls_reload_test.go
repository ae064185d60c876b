package server

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/credentials"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// handshake connects server and client. It returns the server's certificate in PEM, or the error of
// the side that rejected its peer.
func handshake(t *testing.T, server, client *access.TLS) ([]byte, error) {
	t.Helper()
	a, b := net.Pipe()
	served := make(chan error, 1)
	go func() {
		conn, _, err := server.ServerHandshake(a)
		if err == nil {
			conn.Close()
		}
		a.Close()
		served <- err
	}()
	var received []byte
	conn, info, err := client.ClientHandshake(t.Context(), host, b)
	if err == nil {
		_, _ = io.Copy(io.Discard, conn) // until the server has accepted or rejected the client
		secure, _ := info.(credentials.TLSInfo)
		received = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.State.PeerCertificates[0].Raw})
	}
	b.Close()
	return received, errors.Join(<-served, err)
}

// follow runs s until the test ends.
func follow(t *testing.T, s *access.TLS) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
}

func put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTLSFollowsItsFiles changes the files step by step and checks new handshakes, logs and metrics
// after each step. The clock is fake.
func TestTLSFollowsItsFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, newer := authority(t), authority(t)
		first, second := issue(t, ours, testcert.Leaf{Names: []string{host}}), issue(t, ours, testcert.Leaf{Names: []string{host}, Expires: time.Now().Add(20 * time.Hour)})
		stale := issue(t, ours, testcert.Leaf{Names: []string{host}, Expires: time.Now().Add(-time.Hour)})
		files := write(t, first, ours.PEM)
		core, logger := newLines()
		metrics := newMetrics(t).TLS("grpc")
		s := serverTLS(t, access.TLSOptions{Cert: files.Cert, Key: files.Key, CA: files.CA, Metrics: metrics, Logger: logger})
		follow(t, s)
		core.await(t, "TLS files loaded") // the initial load
		client := func(a *testcert.Authority) *access.TLS {
			f := write(t, issue(t, a, testcert.Leaf{}), ours.PEM)
			return clientTLS(t, access.TLSOptions{Cert: f.Cert, Key: f.Key, CA: f.CA})
		}
		oldClient, newClient := client(ours), client(newer)
		both := slices.Concat(ours.PEM, newer.PEM)
		var errorsBefore, reloadsBefore float64
		for _, step := range []struct {
			name    string
			change  func()
			served  testcert.Pair
			accepts bool   // whether a client of the newer authority is accepted
			logged  string // expected log line; "" means none
		}{
			{"nothing", func() {}, first, false, ""},
			{"the same certificate again", func() { put(t, files.Cert, first.Cert) }, first, false, ""},
			{"a certificate without its key", func() { put(t, files.Cert, second.Cert) }, first, false, "certificate " + files.Cert + " with key " + files.Key + ": tls: private key does not match"},
			{"the key of that certificate", func() { put(t, files.Key, second.Key) }, second, false, "TLS files loaded"},
			{"a key within a poll of its certificate", func() {
				put(t, files.Cert, first.Cert)
				time.Sleep(time.Second)
				put(t, files.Key, first.Key)
			}, first, false, "TLS files loaded"},
			{"half a certificate", func() { put(t, files.Cert, first.Cert[:100]) }, first, false, files.Cert + ": only 0 of 1 PEM blocks can be decoded"},
			{"an empty certificate file", func() { put(t, files.Cert, nil) }, first, false, files.Cert + " contains no PEM certificate"},
			{"no certificate file", func() { _ = os.Remove(files.Cert) }, first, false, "open " + files.Cert + ": no such file"},
			{"the certificate that was active", func() { put(t, files.Cert, first.Cert) }, first, false, "match those in use again"},
			{"half a bundle", func() { put(t, files.CA, both[:len(both)-10]) }, first, false, files.CA + ": only 1 of 2 PEM blocks can be decoded"},
			{"another authority in addition to the first", func() { put(t, files.CA, both) }, first, true, "TLS files loaded"},
			{"an expired pair", func() { put(t, files.Cert, stale.Cert); put(t, files.Key, stale.Key) }, first, true, files.Cert + ": the certificate expired at"},
			{"a valid pair and one authority fewer", func() {
				put(t, files.Cert, second.Cert)
				put(t, files.Key, second.Key)
				put(t, files.CA, ours.PEM)
			}, second, false, "TLS files loaded"},
		} {
			step.change()
			time.Sleep(10 * time.Second) // many polls; each change must be logged once
			synctest.Wait()
			var got []string
			for len(core) > 0 {
				got = append(got, <-core)
			}
			if step.logged == "" && len(got) != 0 || step.logged != "" && (len(got) != 1 || !strings.Contains(got[0], step.logged)) {
				t.Errorf("%s: logged %q, want %q", step.name, got, step.logged)
			}
			reloads, failures := testutil.ToFloat64(metrics.Reloads)-reloadsBefore, testutil.ToFloat64(metrics.ReloadErrors)-errorsBefore
			var wantReloads, wantFailures, wantOK float64 = 0, 0, 1
			switch {
			case step.logged == "TLS files loaded":
				wantReloads = 1
			case step.logged != "" && !strings.Contains(step.logged, "in use again"):
				wantFailures, wantOK = 1, 0
			}
			if ok := testutil.ToFloat64(metrics.LastOK); reloads != wantReloads || failures != wantFailures || ok != wantOK {
				t.Errorf("%s: %v reloads, %v failures, last ok %v, want %v, %v, %v", step.name, reloads, failures, ok, wantReloads, wantFailures, wantOK)
			}
			reloadsBefore += reloads
			errorsBefore += failures
			served, err := handshake(t, s, oldClient)
			if err != nil || !bytes.Equal(served, step.served.Cert) {
				t.Errorf("%s: the server sends another certificate or none: %v", step.name, err)
			}
			if _, err := handshake(t, s, newClient); (err == nil) != step.accepts {
				t.Errorf("%s: the client of the newer authority gets %v; want it to be accepted: %v", step.name, err, step.accepts)
			}
			for len(core) > 0 {
				<-core // failed handshakes
			}
		}
		block, _ := pem.Decode(second.Cert)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := testutil.ToFloat64(metrics.Expiry); got != float64(cert.NotAfter.Unix()) {
			t.Errorf("the expiry is %v, want %v", got, cert.NotAfter.Unix())
		}
	})
}

// TestTLSWarnsOfAnExpiredCertificate starts with an expired certificate. Clients that do not check
// the date are served.
func TestTLSWarnsOfAnExpiredCertificate(t *testing.T) {
	a := authority(t)
	chain := issue(t, a, testcert.Leaf{Names: []string{host}})
	old := issue(t, a, testcert.Leaf{Expires: time.Now().Add(-time.Hour)})
	chain.Cert = append(chain.Cert, old.Cert...) // the earliest expiry of the chain counts
	files := write(t, chain, a.PEM)
	log, logger := newLines()
	serverTLS(t, access.TLSOptions{Cert: files.Cert, Key: files.Key, Logger: logger})
	log.await(t, "the certificate has expired")
}
