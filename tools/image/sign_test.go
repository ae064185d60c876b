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
	"encoding/base64"
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

// publicKey is a public key that verifies signatures of envelopes.
type publicKey struct{ *ecdsa.PublicKey }

func (p publicKey) Verify(_ context.Context, data, signature []byte) error {
	digest := sha256.Sum256(data)
	if !ecdsa.VerifyASN1(p.PublicKey, digest[:], signature) {
		return errors.New("the signature is wrong")
	}
	return nil
}
func (p publicKey) KeyID() (string, error)   { return dsse.SHA256KeyID(p.PublicKey) }
func (p publicKey) Public() crypto.PublicKey { return p.PublicKey }

// parseKey parses a public key.
func parseKey(t *testing.T, text []byte) publicKey {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("the public key is %q", text)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	check(t, err)
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok {
		t.Fatalf("the public key is %T", parsed)
	}
	return publicKey{key}
}

// verify verifies the files of a release: signatures, checksums and provenance.
func verify(ctx context.Context, key publicKey, files map[string][]byte) error {
	if err := key.Verify(ctx, files["SHA256SUMS"], files["SHA256SUMS.sig"]); err != nil {
		return fmt.Errorf("SHA256SUMS.sig: %w", err)
	}
	digests := map[string]string{}
	for line := range strings.Lines(string(files["SHA256SUMS"])) {
		digest, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256(files[name])); got != digest {
			return fmt.Errorf("%s has digest %s, but SHA256SUMS %s", name, got, digest)
		}
		digests[name] = digest
	}
	const name = "sluice-v1.2.3.intoto.json"
	if digests[name] == "" {
		return errors.New("SHA256SUMS lacks the provenance")
	}
	delete(digests, name)
	if err := verifyEnvelope(ctx, key, files[name+"l"], files[name]); err != nil {
		return err
	}
	return verifyStatement(files[name], digests)
}

// verifyEnvelope verifies that an envelope is signed and contains the statement.
func verifyEnvelope(ctx context.Context, key publicKey, text, statement []byte) error {
	var envelope dsse.Envelope
	if err := json.Unmarshal(text, &envelope); err != nil {
		return err
	}
	verifier, err := dsse.NewEnvelopeVerifier(key)
	if err != nil {
		return err
	}
	if _, err := verifier.Verify(ctx, &envelope); err != nil {
		return fmt.Errorf("the envelope: %w", err)
	}
	payload, err := envelope.DecodeB64Payload()
	if err == nil && (!bytes.Equal(payload, statement) || envelope.PayloadType != "application/vnd.in-toto+json") {
		return errors.New("the envelope contains another statement")
	}
	return err
}

// verifyStatement verifies that a statement is about the files with the given digests and about one
// image.
func verifyStatement(text []byte, digests map[string]string) error {
	var statement intoto.Statement
	if err := protojson.Unmarshal(text, &statement); err != nil {
		return err
	}
	predicate, err := protojson.Marshal(statement.GetPredicate())
	if err != nil {
		return err
	}
	var provenance slsa.Provenance
	if err := errors.Join(statement.Validate(), protojson.Unmarshal(predicate, &provenance), provenance.Validate()); err != nil {
		return err
	}
	subjects := map[string]string{}
	for _, subject := range statement.GetSubject() {
		subjects[subject.GetName()] = subject.GetDigest()["sha256"]
	}
	delete(subjects, "oci")
	if !maps.Equal(subjects, digests) {
		return fmt.Errorf("the statement is about %v, want %v", subjects, digests)
	}
	return nil
}

// TestReleaseIsSigned verifies a signed release, and that a changed byte of any of its files is
// detected.
func TestReleaseIsSigned(t *testing.T) {
	dir := t.TempDir()
	files, flags := signedRelease(t, dir)
	key := parseKey(t, files["sluice.pub"])
	check(t, verify(t.Context(), key, files))
	if len(files) != 9 {
		t.Errorf("the release has %q", slices.Sorted(maps.Keys(files)))
	}
	for name, content := range files {
		step := max(1, len(content)/8) // archives are large
		if strings.HasSuffix(name, ".jsonl") || name == "sluice.pub" {
			continue // base64 has bits without a meaning
		}
		for at := 0; at < len(content); at += step {
			changed := bytes.Clone(content)
			changed[at] ^= 1
			files[name] = changed
			if verify(t.Context(), key, files) == nil {
				t.Fatalf("byte %d of %s can change", at, name)
			}
		}
		files[name] = content
	}
	const name = "sluice-v1.2.3.intoto.jsonl"
	var envelope dsse.Envelope
	check(t, json.Unmarshal(files[name], &envelope))
	statement := files[strings.TrimSuffix(name, "l")]
	check(t, verifyEnvelope(t.Context(), key, files[name], statement))
	for _, field := range []*string{&envelope.Payload, &envelope.Signatures[0].Sig} {
		before := *field
		content, err := base64.StdEncoding.DecodeString(before)
		check(t, err)
		for at := range content {
			content[at] ^= 1
			*field = base64.StdEncoding.EncodeToString(content)
			content[at] ^= 1
			changed, err := json.Marshal(envelope)
			check(t, err)
			if verifyEnvelope(t.Context(), key, changed, statement) == nil {
				t.Fatalf("byte %d of the envelope can change", at)
			}
		}
		*field = before
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
