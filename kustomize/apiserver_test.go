//go:build apiserver

package kustomize

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// apiServer is a real Kubernetes API server, built by conformance/apiserver.
type apiServer struct {
	url    string
	token  string
	client *http.Client
	// resources are the resource types by group and version.
	resources map[string][]metav1.APIResource
}

// startAPIServer starts the program in SLUICE_APISERVER, and stops it at the end of the test.
func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	path := os.Getenv("SLUICE_APISERVER")
	if path == "" {
		t.Fatal("SLUICE_APISERVER is empty: run make test-apiserver")
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(t.Context(), path, dir)
	program.Stderr = log
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = program.Wait() // the reason is in its log
		_ = log.Close()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("the API server printed %q, %v:\n%s", line, err, text[max(0, len(text)-4000):])
	}
	s := &apiServer{resources: map[string][]metav1.APIResource{}}
	if err := s.configure(filepath.Join(dir, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	return s
}

// configure reads the kubeconfig at path.
func (s *apiServer) configure(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				Name   string `json:"tls-server-name"`
				CA     string `json:"certificate-authority-data"`
			}
		}
		Users []struct{ User struct{ Token string } }
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return err
	}
	cluster := config.Clusters[0].Cluster
	ca, err := base64.StdEncoding.DecodeString(cluster.CA)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	s.url, s.token = cluster.Server, config.Users[0].User.Token
	s.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: cluster.Name, MinVersion: tls.VersionTLS12},
	}}
	return nil
}

// call sends a request and returns the warnings of the response. Errors from the server are returned as err.
func (s *apiServer) call(ctx context.Context, method, path string, body []byte, into any) (warnings []string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Accept", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		var status metav1.Status
		if json.Unmarshal(text, &status) == nil && status.Message != "" {
			return nil, errors.New(status.Message)
		}
		return nil, fmt.Errorf("%s: %s", response.Status, text)
	}
	if into != nil {
		err = json.Unmarshal(text, into)
	}
	return response.Header.Values("Warning"), err
}

// path returns the URL path of an object.
func (s *apiServer) path(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	version := o.GetAPIVersion()
	root := "/apis/" + version
	if !strings.Contains(version, "/") {
		root = "/api/" + version
	}
	find := func(r metav1.APIResource) bool { return r.Kind == o.GetKind() && !strings.Contains(r.Name, "/") }
	i := slices.IndexFunc(s.resources[version], find)
	if i < 0 {
		var list metav1.APIResourceList
		if _, err := s.call(ctx, http.MethodGet, root, nil, &list); err != nil {
			return "", fmt.Errorf("%s: %w", version, err)
		}
		s.resources[version] = list.APIResources
		if i = slices.IndexFunc(list.APIResources, find); i < 0 {
			return "", fmt.Errorf("the server has no %s of %s", o.GetKind(), version)
		}
	}
	resource := s.resources[version][i]
	if resource.Namespaced {
		root += "/namespaces/" + cmp.Or(o.GetNamespace(), "default")
	}
	return root + "/" + resource.Name + "/" + o.GetName(), nil
}

// apply applies objects in order, like `kubectl apply --server-side --validate=strict`, and returns all errors and
// warnings from the server.
func (s *apiServer) apply(ctx context.Context, documents [][]byte) (problems []string, applied []string) {
	for _, document := range documents {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			problems = append(problems, err.Error())
			continue
		}
		path, err := s.path(ctx, o)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		query := url.Values{"fieldManager": {"sluice"}, "fieldValidation": {"Strict"}, "force": {"true"}}
		warnings, err := s.call(ctx, http.MethodPatch, path+"?"+query.Encode(), document, nil)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s %s: %v", o.GetKind(), o.GetName(), err))
			continue
		}
		applied = append(applied, path)
		for _, w := range warnings {
			problems = append(problems, fmt.Sprintf("%s %s: warning: %s", o.GetKind(), o.GetName(), w))
		}
	}
	return problems, applied
}

// tryApply applies objects and deletes them again, except namespaces, which only a controller can delete.
func (s *apiServer) tryApply(ctx context.Context, documents [][]byte) []string {
	problems, applied := s.apply(ctx, documents)
	for _, path := range slices.Backward(applied) {
		if strings.HasPrefix(path, "/api/v1/namespaces/") && strings.Count(path, "/") == 4 {
			continue
		}
		if _, err := s.call(ctx, http.MethodDelete, path, nil, nil); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// crdFiles are the files with the CRDs that the manifests use, by module.
var crdFiles = map[string][]string{
	"istio.io/api":                      {"kubernetes/customresourcedefinitions.gen.yaml"},
	"github.com/projectcontour/contour": {"examples/contour/01-crds.yaml"},
	"github.com/envoyproxy/gateway":     {"test/helm/gateway-crds-helm/envoy-gateway-crds.out.yaml"},
	"github.com/prometheus-operator/prometheus-operator": {
		"example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
	},
}

// installCRDs installs the CRDs in the server.
func (s *apiServer) installCRDs(t *testing.T) {
	t.Helper()
	for module, files := range crdFiles {
		dir, err := moduleDir(t.Context(), module)
		if err != nil {
			t.Fatalf("%s, whose kinds the manifests have: %v", module, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			problems, _ := s.apply(t.Context(), split(string(text)))
			for _, problem := range problems {
				t.Logf("%s: %s", file, problem)
			}
		}
	}
	for _, o := range []struct{ version, kind string }{
		{"networking.istio.io/v1alpha3", "EnvoyFilter"},
		{"projectcontour.io/v1alpha1", "ContourConfiguration"},
		{"projectcontour.io/v1alpha1", "ExtensionService"},
		{"gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy"},
		{"monitoring.coreos.com/v1", "PodMonitor"},
		{"monitoring.coreos.com/v1", "PrometheusRule"},
	} {
		wanted := &unstructured.Unstructured{}
		wanted.SetAPIVersion(o.version)
		wanted.SetKind(o.kind)
		suite.Eventually(t, "the server has "+o.kind, func() bool {
			_, err := s.path(t.Context(), wanted)
			return err == nil
		})
	}
}

// moduleDir returns the directory of a module: a dependency of this module, or a module with the same version as a
// dependency that is a part of it.
func moduleDir(ctx context.Context, module string) (string, error) {
	var found struct{ Dir, Version string }
	ask := func(args ...string) error {
		out, err := exec.CommandContext(ctx, "go", args...).Output()
		if err == nil {
			err = json.Unmarshal(out, &found)
		}
		return err
	}
	if err := ask("list", "-m", "-json", module); err == nil && found.Dir != "" {
		return found.Dir, nil
	}
	if err := ask("list", "-m", "-json", module+"/pkg/apis/monitoring"); err != nil {
		return "", err
	}
	err := ask("mod", "download", "-json", module+"@"+found.Version)
	return found.Dir, err
}

// split splits a file into its YAML documents.
func split(text string) (documents [][]byte) {
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var object map[string]any
		if yaml.Unmarshal([]byte(document), &object) == nil && object != nil {
			documents = append(documents, []byte(document))
		}
	}
	return documents
}

// TestAPIServer applies every combination, the chart in every mode, and the objects of examples.
func TestAPIServer(t *testing.T) {
	s := startAPIServer(t)
	s.installCRDs(t)
	for _, namespace := range []string{"sluice", "istio-system", "projectcontour", "envoy-gateway-system", "shop"} {
		o := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + namespace + "}\n"
		if problems, _ := s.apply(t.Context(), [][]byte{[]byte(o)}); problems != nil {
			t.Fatal(problems)
		}
	}
	for _, c := range combos() {
		t.Run(c.String(), func(t *testing.T) {
			built, err := manifests.build(c.files())
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range s.tryApply(t.Context(), built) {
				t.Error(problem)
			}
			if noChartMode[c.overlay] {
				return
			}
			rendered, err := render("sluice", c.values())
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range s.tryApply(t.Context(), rendered) {
				t.Error("the chart: " + problem)
			}
		})
	}
	t.Run("examples", s.applyExamples)
}

// unsupportedKinds are kinds whose CRDs are not available, with the reason.
var unsupportedKinds = map[string]string{"kind: QuotaPolicy": "no module proxy has Envoy AI Gateway, whose chart defines the kind"}

// applyExamples applies all Kubernetes objects in ../examples.
func (s *apiServer) applyExamples(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("../examples/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains("\n"+string(text), "\napiVersion: ") || filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		if kind := strings.TrimSpace(regexp.MustCompile(`(?m)^kind:.*$`).FindString(string(text))); unsupportedKinds[kind] != "" {
			if err := suite.NoteSkipped("judging " + file + ": " + unsupportedKinds[kind]); err != nil {
				t.Error(err)
			}
			continue
		}
		judged++
		for _, problem := range s.tryApply(t.Context(), split(string(text))) {
			t.Errorf("%s: %s", file, problem)
		}
	}
	if judged < 4 {
		t.Errorf("%d files of examples were applied, want those for Istio, Contour and Envoy Gateway", judged)
	}
}
