package access

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/testcert"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// TestConditionsOfTLSFiles uses files that cannot be loaded, and a certificate that expires while
// in use. The clock is fake.
func TestConditionsOfTLSFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := testcert.New("authority")
		must.OK(t, err)
		dir := t.TempDir()
		mount := func(p testcert.Pair) testcert.Files {
			t.Helper()
			files, err := testcert.Mount(dir, p, a.PEM)
			must.OK(t, err)
			return files
		}
		issue := func(after time.Duration) testcert.Pair {
			t.Helper()
			p, err := a.Issue(testcert.Leaf{Names: []string{"a.test"}, Expires: time.Now().Add(after)})
			must.OK(t, err)
			return p
		}
		m, err := telemetry.New(telemetry.Options{})
		must.OK(t, err)
		expect := func(when string, want ...telemetry.Code) {
			t.Helper()
			time.Sleep(3 * time.Second) // fake time, for two equal readings
			var got []telemetry.Code
			for _, c := range m.Conditions.Active(time.Now()) {
				got = append(got, c.Code)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: the conditions are %v, want %v", when, got, want)
			}
		}
		first := issue(100 * time.Hour)
		files := mount(first)
		secure, err := ServerTLS(TLSOptions{
			Cert: files.Cert, Key: files.Key, CA: files.CA, Use: "grpc", Metrics: m.TLS("grpc"), Logger: m.Events.Watch(zap.NewNop()),
		})
		must.OK(t, err)
		var group sync.WaitGroup
		group.Go(func() { secure.Run(t.Context()) })
		t.Cleanup(group.Wait)
		expect("at first")
		mixed := issue(200 * time.Hour)
		mount(testcert.Pair{Cert: mixed.Cert, Key: first.Key})
		expect("a key of another certificate", telemetry.TLSFilesRejected)
		mount(first)
		expect("the files are as before")
		mount(testcert.Pair{Cert: mixed.Cert, Key: first.Key})
		expect("a key of another certificate again", telemetry.TLSFilesRejected)
		mount(issue(12 * time.Hour)) // begins two days ago: a tenth of its validity is six hours
		expect("new files")
		time.Sleep(7 * time.Hour)
		expect("the certificate expires in five hours", telemetry.CertificateExpiresSoon)
		if c := m.Conditions.Active(time.Now())[0]; c.Fields["use"] != "grpc" || c.Fields["file"] != files.Cert || c.Severity != "warning" {
			t.Errorf("the condition is %+v, want it to name the listener and the file", c)
		}
		time.Sleep(5 * time.Hour)
		expect("the certificate has expired", telemetry.CertificateExpired)
		if c := m.Conditions.Active(time.Now())[0]; c.Severity != "error" {
			t.Errorf("the condition is %+v, want an error", c)
		}
		mount(issue(-time.Hour))
		expect("another one that has expired", telemetry.CertificateExpired)
		mount(issue(12 * time.Hour))
		expect("one that is valid for twelve hours")
	})
}

// TestConditionsOfTwoListeners uses two listeners whose files differ in the key only. Those of one
// cannot be loaded.
func TestConditionsOfTwoListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := testcert.New("authority")
		if err != nil {
			t.Fatal(err)
		}
		issue := func(dir string) (testcert.Pair, testcert.Files) {
			t.Helper()
			p, err := a.Issue(testcert.Leaf{Names: []string{"a.test"}})
			if err != nil {
				t.Fatal(err)
			}
			files, err := testcert.Mount(dir, p, a.PEM)
			if err != nil {
				t.Fatal(err)
			}
			return p, files
		}
		m, err := telemetry.New(telemetry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		first, files := issue(t.TempDir())
		copied := filepath.Join(t.TempDir(), "key")
		write := func(key []byte) {
			t.Helper()
			if err := os.WriteFile(copied, key, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(first.Key)
		var group sync.WaitGroup
		logger := m.Events.Watch(zap.NewNop())
		for _, key := range []string{files.Key, copied} {
			secure, err := ServerTLS(TLSOptions{Cert: files.Cert, Key: key, CA: files.CA, Logger: logger})
			if err != nil {
				t.Fatal(err)
			}
			group.Go(func() { secure.Run(t.Context()) })
		}
		t.Cleanup(group.Wait)
		next, _ := issue(filepath.Dir(files.Cert))
		time.Sleep(3 * time.Second) // fake: two readings agree
		if _, err := testcert.Mount(filepath.Dir(files.Cert), testcert.Pair{Cert: next.Cert, Key: append(next.Key, '\n')}, a.PEM); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if active := m.Conditions.Active(time.Now()); len(active) != 1 || active[0].Code != telemetry.TLSFilesRejected {
			t.Errorf("the conditions are %+v, want one for the listener whose key is of another certificate", active)
		}
	})
}
