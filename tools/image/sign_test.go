package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"
)

// newKey returns a private key as PEM.
func newKey(t *testing.T, key any, err error) string {
	t.Helper()
	check(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// clone returns the directory of a repository with the files that a release contains, and its
// commit.
func clone(t *testing.T) (dir, commit string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{".gitignore", "go.mod", "go.sum", "LICENSE", "README.md", "CHANGELOG.md"} {
		check(t, os.WriteFile(filepath.Join(dir, name), read(t, filepath.Join(source, name)), 0o600))
	}
	check(t, os.CopyFS(filepath.Join(dir, "charts"), os.DirFS(filepath.Join(source, "charts"))))
	output(t, "git", "-C", dir, "init", "-q")
	output(t, "git", "-C", dir, "add", "-A")
	output(t, "git", "-C", dir, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a release")
	return dir, strings.TrimSpace(output(t, "git", "-C", dir, "rev-parse", "HEAD"))
}

// signedRelease returns the files of a release in dir that is signed with a new key, by name, and
// the flags with which it was built.
func signedRelease(t *testing.T, dir string) (files map[string][]byte, flags []string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	t.Setenv(keyVariable, newKey(t, key, err))
	from, commit := clone(t)
	flags = []string{"-source", from, "-revision", commit}
	releaseInto(t, dir, flags...)
	return filesIn(t, dir), flags
}

func filesIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range entries {
		if !e.IsDir() {
			files[e.Name()] = read(t, filepath.Join(dir, e.Name()))
		}
	}
	return files
}

// Verify verifies the signature of an envelope.
func (s *signer) Verify(_ context.Context, data, signature []byte) error {
	digest := sha256.Sum256(data)
	if !ecdsa.VerifyASN1(&s.key.PublicKey, digest[:], signature) {
		return errors.New("the signature is wrong")
	}
	return nil
}

// Public returns the key that verifies an envelope.
func (s *signer) Public() crypto.PublicKey { return s.key.Public() }

// TestReleaseIsSigned verifies the envelope and the statement of a signed release, which is the same each time.
// TestVerifyWithOpenSSL verifies the other files.
func TestReleaseIsSigned(t *testing.T) {
	dir := t.TempDir()
	files, flags := signedRelease(t, dir)
	const name = "sluice-v1.2.3.intoto.json"
	if len(files) != 9 || !strings.Contains(string(files["SHA256SUMS"]), "  "+name+"\n") {
		t.Errorf("the release has %q and the sums\n%s", slices.Sorted(maps.Keys(files)), files["SHA256SUMS"])
	}
	var envelope dsse.Envelope
	check(t, json.Unmarshal(files[name+"l"], &envelope))
	block, _ := pem.Decode([]byte(os.Getenv(keyVariable)))
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	check(t, err)
	key, _ := parsed.(*ecdsa.PrivateKey)
	verifier, err := dsse.NewEnvelopeVerifier(&signer{key})
	check(t, err)
	_, err = verifier.Verify(t.Context(), &envelope)
	check(t, err)
	payload, err := envelope.DecodeB64Payload()
	check(t, err)
	if !bytes.Equal(payload, files[name]) || envelope.PayloadType != "application/vnd.in-toto+json" {
		t.Errorf("the envelope has type %s and the statement\n%s", envelope.PayloadType, payload)
	}
	var statement intoto.Statement
	check(t, protojson.Unmarshal(payload, &statement))
	predicate, err := protojson.Marshal(statement.GetPredicate())
	check(t, err)
	var provenance slsa.Provenance
	check(t, errors.Join(statement.Validate(), protojson.Unmarshal(predicate, &provenance), provenance.Validate()))
	for _, subject := range statement.GetSubject() {
		if sum := fmt.Sprintf("%x", sha256.Sum256(files[subject.GetName()])); subject.GetName() != "oci" && subject.GetDigest()["sha256"] != sum {
			t.Errorf("the statement has %v, want the digest %s", subject, sum)
		}
	}

	again := t.TempDir()
	releaseInto(t, again, flags...)
	for name, content := range filesIn(t, again) {
		if !bytes.Equal(content, files[name]) {
			t.Errorf("two releases with one key differ in %s", name)
		}
	}
	t.Setenv(keyVariable, "")
	var printed bytes.Buffer
	check(t, run(t.Context(), imageArgs(dir, "-release"), &printed, t.Output()))
	unsigned := filesIn(t, dir)
	if len(unsigned) != 6 || !strings.Contains(printed.String(), "NOT SIGNED: SLUICE_RELEASE_KEY is not set") {
		t.Errorf("without a key there are %q, and it printed %q", slices.Sorted(maps.Keys(unsigned)), printed.String())
	}
}

// TestProvenance checks the contents of the statement.
func TestProvenance(t *testing.T) {
	dir := t.TempDir()
	releaseInto(t, dir)
	statement := string(read(t, filepath.Join(dir, "sluice-v1.2.3.intoto.json")))
	digest, err := readLayout(t, dir).Digest()
	check(t, err)
	for _, want := range []string{
		`"predicateType": "https://slsa.dev/provenance/v1"`, `"version": "v1.2.3"`, `"go": "` + mustRead(t).info.GoVersion + `"`,
		`"uri": "git+https://github.com/sluice-ratelimit/sluice.git@` + revision + `"`, `"gitCommit": "` + revision + `"`,
		`"name": "sluice-chart-1.2.3.tgz"`, `"name": "sluice-v1.2.3-linux-` + runtime.GOARCH + `.tar.gz"`, digest.Hex,
	} {
		if !strings.Contains(statement, want) {
			t.Errorf("the statement lacks %s:\n%s", want, statement)
		}
	}
}

// TestVerifyWithOpenSSL verifies a release with the commands in docs/image.md.
func TestVerifyWithOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		if left, err := os.OpenFile(os.Getenv("SLUICE_NOT_RUN"), os.O_APPEND|os.O_WRONLY, 0); err == nil {
			fmt.Fprintln(left, "the commands that verify a release: install openssl")
			check(t, left.Close())
		}
		t.Skip("openssl is not installed")
	}
	page := string(read(t, filepath.Join(source, "docs", "image.md")))
	_, commands, _ := strings.Cut(page, "### Verify a release")
	_, commands, _ = strings.Cut(commands, "```bash\n")
	commands, _, found := strings.Cut(commands, "```")
	if !found {
		t.Fatal("docs/image.md has no commands that verify a release")
	}
	dir := t.TempDir()
	files, _ := signedRelease(t, dir)
	shell := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", commands)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	archive := "sluice-v1.2.3-linux-" + runtime.GOARCH + ".tar.gz"
	for _, name := range []string{"", archive, "sluice-v1.2.3.intoto.json", "SHA256SUMS", "SHA256SUMS.sig"} {
		if name != "" {
			changed := bytes.Clone(files[name])
			changed[len(changed)/2] ^= 1
			check(t, os.WriteFile(filepath.Join(dir, name), changed, 0o600))
		}
		out, err := shell()
		if name == "" && (err != nil || !strings.Contains(out, "Verified OK") || !strings.Contains(out, archive+": OK") || !strings.Contains(out, "sluice-v1.2.3.intoto.json: OK")) {
			t.Errorf("a release: %v:\n%s", err, out)
		}
		if name != "" {
			if err == nil {
				t.Errorf("with a changed byte of %s:\n%s", name, out)
			}
			check(t, os.WriteFile(filepath.Join(dir, name), files[name], 0o600))
		}
	}
}

func TestSigningKeyIsRejected(t *testing.T) {
	rsaKey, rsaErr := rsa.GenerateKey(rand.Reader, 2048)
	p384, p384Err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	from, commit := clone(t)
	for _, c := range []struct{ key, want string }{
		{"release.key", "SLUICE_RELEASE_KEY must contain a private key"},
		{newKey(t, rsaKey, rsaErr), "ECDSA P-256"},
		{newKey(t, p384, p384Err), "openssl genpkey"},
	} {
		t.Setenv(keyVariable, c.key)
		if _, err := newSigner(release{version: "v1", revision: commit}, from); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("newSigner = %v, want %q", err, c.want)
		}
	}
}

// TestChangedTreeIsNotSigned verifies that only a clone at its commit is signed, whatever the name
// of the version.
func TestChangedTreeIsNotSigned(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	t.Setenv(keyVariable, newKey(t, key, err))
	from, commit := clone(t)
	in := func(name string) string { return filepath.Join(from, name) }
	license := read(t, in("LICENSE"))
	expect := func(r release, want string) {
		t.Helper()
		out := t.TempDir()
		o := &options{release: r, out: out, source: from}
		err := writeRelease(t.Context(), o, []*program{mustRead(t)}, t.Output())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), ", or unset SLUICE_RELEASE_KEY") {
			t.Errorf("a release of %+v: %v, want %q", r, err, want)
		}
		if files := filesIn(t, out); len(files) > 0 {
			t.Errorf("a release that is not signed has %q", slices.Sorted(maps.Keys(files)))
		}
	}
	r := release{version: "v1.2.3", revision: commit}
	if signer, err := newSigner(r, from); err != nil || signer == nil {
		t.Errorf("a clone without changes is not signed: %v", err)
	}
	expect(release{version: "v1.2.3-4-gabc-dirty", revision: commit}, "sign v1.2.3-4-gabc-dirty: when make started, the tree had changes")
	expect(release{version: "v1.2.3", revision: revision}, "the tree is at the commit "+commit+`, not "`+revision)
	check(t, os.WriteFile(in("LICENSE"), []byte("none"), 0o600))
	expect(r, "sign v1.2.3: the tree has changes that are not in a commit:\n M LICENSE\ncommit them")
	output(t, "git", "-C", from, "add", "-A")
	expect(r, "\nM  LICENSE\n")
	check(t, os.WriteFile(in("LICENSE"), license, 0o600))
	output(t, "git", "-C", from, "add", "-A")
	check(t, os.WriteFile(in("new.go"), nil, 0o600))
	expect(r, "\n?? new.go\n")
	check(t, os.Remove(in("new.go")))
	check(t, os.Mkdir(in("dist"), 0o700)) // ignored
	check(t, os.WriteFile(in("dist/sluice"), nil, 0o600))
	if _, err := newSigner(r, from); err != nil {
		t.Errorf("with an ignored file a clone is not signed: %v", err)
	}
	check(t, os.RemoveAll(in(".git")))
	expect(r, "not a git repository")
}
