package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/sluice-ratelimit/sluice/conformance/connect/conformancev1"
	"github.com/sluice-ratelimit/sluice/conformance/transport"
)

// features selects the cases: gRPC over HTTP/2 with all kinds of streams, uncompressed.
const features = `
features:
  versions: [HTTP_VERSION_2]
  protocols: [PROTOCOL_GRPC]
  codecs: [CODEC_PROTO]
  compressions: [COMPRESSION_IDENTITY]
  supportsTls: false
`

// cases is the number of selected cases in connectrpc/conformance 1.0.7.
const cases = 198

// knownFailing are the cases that must fail with grpc-go. Its server returns INTERNAL if a call has
// no request, or several where one is expected. gRPC's status code guide requires UNIMPLEMENTED.
var knownFailing = map[string][]string{
	"grpc-go": {"**/unary/multiple-requests", "**/unary/no-request", "**/server-stream/multiple-requests", "**/server-stream/no-request"},
}

// The suite starts this program with this flag as the server.
var serves = flag.String("serves", "", "serve the suite with this transport, and run no tests")

func TestMain(m *testing.M) {
	flag.Parse()
	if *serves == "" {
		os.Exit(m.Run())
	}
	if err := serve(*serves, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs a server until the suite stops it. The suite sends its request to in and reads the
// address from out.
func serve(name string, in io.Reader, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var request pb.ServerCompatRequest
	if err := receive(in, &request); err != nil {
		return err
	}
	server, err := transport.Start(name, int(request.GetMessageReceiveLimit()), func(s grpc.ServiceRegistrar) {
		s.RegisterService(&serviceDesc, struct{}{})
	})
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		return errors.Join(err, server.Stop())
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return errors.Join(err, server.Stop())
	}
	if err := send(out, &pb.ServerCompatResponse{Host: host, Port: uint32(number)}); err != nil {
		return errors.Join(err, server.Stop())
	}
	<-ctx.Done()
	return server.Stop()
}

// receive reads a message with its prefix of four bytes.
func receive(r io.Reader, m proto.Message) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}

func send(w io.Writer, m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// TestConformance runs the suite with each transport.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	runner, conf := filepath.Join(dir, "runner"), filepath.Join(dir, "features.yaml")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", runner, "connectrpc.com/conformance/cmd/connectconformance")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the runner: %v:\n%s", err, out)
	}
	if err := os.WriteFile(conf, []byte(features), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range transport.Names {
		t.Run(name, func(t *testing.T) {
			args := []string{"--mode", "server", "--conf", conf}
			for _, pattern := range knownFailing[name] {
				args = append(args, "--known-failing", pattern)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, runner, append(args, "--", os.Args[0], "-serves", name)...).CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatal(err)
			}
			want := regexp.MustCompile(fmt.Sprintf(`(?m)^Total cases: %d$`, cases))
			if !want.Match(out) {
				t.Errorf("the suite did not run %d cases", cases)
			}
		})
	}
}
