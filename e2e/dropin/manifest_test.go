package dropin

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/testcert"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	"github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// manifest is a deployment of envoyproxy/ratelimit.
type manifest struct {
	// args is the command. Default: that of the image.
	args, env []string
	// configMap contains files by their path in the container.
	configMap map[string]string
	// secret is the directory of a certificate in the container, followed by its names. Optional.
	secret []string
	// trusted is true if the image trusts the authority of that certificate.
	trusted bool
	// ads contains the rules of the management server. Optional.
	ads *ratelimitv3.RateLimitConfig
	// call contains arguments of `sluice call`, and want is its output.
	call []string
	want string
}

func readManifest(t *testing.T, path string) manifest {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	must.OK(t, err)
	m := manifest{configMap: map[string]string{}}
	for _, f := range archive.Files {
		text := strings.TrimSpace(string(f.Data))
		switch mounted, ok := strings.CutPrefix(f.Name, "configmap"); {
		case ok:
			m.configMap[mounted] = string(f.Data)
		case f.Name == "args":
			m.args = strings.Split(text, "\n")
		case f.Name == "env":
			m.env = strings.Split(text, "\n")
		case f.Name == "secret":
			m.secret = strings.Fields(text)
		case f.Name == "trusted":
			m.trusted = true
		case f.Name == "ads":
			m.ads = new(ratelimitv3.RateLimitConfig)
			check(t, protojson.Unmarshal(f.Data, m.ads))
		case f.Name == "call":
			m.call = strings.Fields(text)
		case f.Name == "want":
			m.want = text
		default:
			t.Fatalf("%s has a file %s", path, f.Name)
		}
	}
	return m
}

// authoritiesPath is the path of the trusted authorities in the image.
const authoritiesPath = "etc/ssl/certs/ca-certificates.crt"

// fileSystem creates the root file system from the image and its mounts.
func (m *manifest) fileSystem(t *testing.T, i *image) (root string) {
	t.Helper()
	root = t.TempDir()
	for path, content := range m.configMap {
		// Like the kubelet's mount of a ConfigMap: files are links through ..data.
		dir := filepath.Join(root, filepath.Dir(path))
		check(t, os.MkdirAll(filepath.Join(dir, "..version"), 0o755))
		check(t, os.WriteFile(filepath.Join(dir, "..version", filepath.Base(path)), []byte(content), 0o644))
		if _, err := os.Lstat(filepath.Join(dir, "..data")); err != nil {
			check(t, os.Symlink("..version", filepath.Join(dir, "..data")))
		}
		check(t, os.Symlink(filepath.Join("..data", filepath.Base(path)), filepath.Join(root, path)))
	}
	var authorityPEM []byte
	if len(m.secret) > 0 {
		authority, err := testcert.New("authority")
		check(t, err)
		pair, err := authority.Issue(testcert.Leaf{Names: m.secret[1:]})
		check(t, err)
		dir := filepath.Join(root, m.secret[0])
		check(t, os.MkdirAll(dir, 0o755))
		_, err = testcert.Mount(dir, pair, authority.PEM)
		check(t, err)
		authorityPEM = authority.PEM
	}
	if m.ads != nil {
		// The kubelet writes this file. It stands in for the cluster's DNS here.
		host, _, err := net.SplitHostPort(m.envValue("CONFIG_GRPC_XDS_SERVER_URL"))
		check(t, err)
		check(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
		check(t, os.WriteFile(filepath.Join(root, "etc", "hosts"), []byte("127.0.0.1 "+host+"\n"), 0o644))
	}
	check(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type() == fs.ModeSymlink {
			return err
		}
		mode := fs.FileMode(0o644)
		if entry.IsDir() {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	}))
	i.extract(t, root)
	if m.trusted {
		f, err := os.OpenFile(filepath.Join(root, authoritiesPath), os.O_APPEND|os.O_WRONLY, 0)
		check(t, err)
		_, err = f.Write(authorityPEM)
		check(t, errors.Join(err, f.Close()))
	}
	return root
}

// envValue returns the value of an environment variable.
func (m *manifest) envValue(name string) string {
	for _, item := range m.env {
		if value, ok := strings.CutPrefix(item, name+"="); ok {
			return value
		}
	}
	return ""
}

// startManagement starts the management server at the address in the environment.
func (m *manifest) startManagement(t *testing.T, root string) {
	t.Helper()
	if m.ads == nil {
		return
	}
	_, port, err := net.SplitHostPort(m.envValue("CONFIG_GRPC_XDS_SERVER_URL"))
	check(t, err)
	o := adstest.Options{Addr: "127.0.0.1:" + port, NodeID: m.envValue("CONFIG_GRPC_XDS_NODE_ID")}
	if m.envValue("CONFIG_GRPC_XDS_SERVER_USE_TLS") == "true" {
		files := testcert.PathsIn(filepath.Join(root, m.secret[0]))
		o.Credentials, err = access.ServerTLS(access.TLSOptions{Cert: files.Cert, Key: files.Key, CA: files.CA})
		check(t, err)
	}
	ads, err := adstest.Start(o)
	check(t, err)
	t.Cleanup(ads.Stop)
	check(t, ads.Set("1", m.ads))
}

func check(t *testing.T, err error) {
	t.Helper()
	must.OK(t, err)
}
