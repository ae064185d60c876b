package kustomize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// TestDevValkey runs a real Valkey with the arguments of components/dev-valkey, and a sluice that stores its counters
// there, with the password from its Secret.
func TestDevValkey(t *testing.T) {
	t.Parallel()
	c := combo{"store", []string{"dev-valkey"}}
	o := buildObjects(t, c.files())
	secret, found := findObject[*corev1.Secret](o, "sluice", "sluice-store")
	if !found {
		t.Fatal("there is no Secret sluice-store")
	}
	workload, found := findObject[*appsv1.Deployment](o, "sluice", "valkey")
	if !found {
		t.Fatal("there is no Deployment valkey")
	}
	container := &workload.Spec.Template.Spec.Containers[0]
	password := secret.StringData["auth"]
	var args []string
	for _, arg := range container.Args {
		args = append(args, strings.ReplaceAll(arg, "$(PASSWORD)", password)) // as the kubelet does
	}
	if env := container.Env; len(env) != 1 || env[0].Name != "PASSWORD" || env[0].ValueFrom.SecretKeyRef.Name != secret.Name {
		t.Errorf("the environment is %v, want the password of the Secret", env)
	}
	srv := storetest.Start(t, args...)
	if _, err := srv.Command("GET", "x"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v, want NOAUTH", err)
	}
	dir := t.TempDir()
	auth, rules := filepath.Join(dir, "auth"), filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(auth, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rules, []byte("domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 1 } }]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := sluice.Start(t.Context(), sluice.Options{Binary: binary, Args: []string{
		"--config", rules, "--store=redis://" + srv.Addr, "--store-auth-file=" + auth, "--store-fallback=error", "--unhealthy-without-store",
		"--store-timeout=1m", "--REDIS_TIMEOUT=1m",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	if err := retryUnhealthy(t.Context(), func() error { return get(t.Context(), s.Addr("http"), "/healthcheck") }); err != nil {
		t.Fatal(err)
	}
	if out, err := command(binary, "call", "--addr", s.Addr("grpc"), "--domain", "d", "--descriptor", "k=v", "--timeout", patience.String()); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
