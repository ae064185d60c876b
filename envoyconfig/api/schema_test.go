package api

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	// Dependencies of Envoy's API that are not in sources.
	_ "google.golang.org/protobuf/types/known/anypb"
	_ "google.golang.org/protobuf/types/known/durationpb"
	_ "google.golang.org/protobuf/types/known/emptypb"
	_ "google.golang.org/protobuf/types/known/structpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
	_ "google.golang.org/protobuf/types/known/wrapperspb"
)

var update = flag.Bool("update", false, "write schema.txt")

// kept are the messages on which limiting depends: those that select a request's route and call the service, and the
// configuration of filters that write metadata and headers which descriptors read. A name that ends with a dot stands
// for the message and all messages below it. Fields of other messages can be any object.
const kept = `
envoy.config.bootstrap.v3.Bootstrap. envoy.config.bootstrap.v3.LayeredRuntime envoy.config.bootstrap.v3.RuntimeLayer
envoy.config.core.v3.Node envoy.config.core.v3.BuildVersion envoy.type.v3.SemanticVersion
envoy.config.core.v3.TypedExtensionConfig envoy.config.core.v3.ExtensionConfigSource
envoy.config.core.v3.CidrRange envoy.config.core.v3.HeaderValue envoy.config.core.v3.HeaderValueOption
envoy.config.core.v3.RuntimeFractionalPercent envoy.type.v3.FractionalPercent envoy.type.v3.Int64Range
envoy.type.matcher.v3.StringMatcher envoy.type.matcher.v3.RegexMatcher envoy.type.matcher.v3.AddressMatcher
envoy.type.metadata.v3.MetadataKey. envoy.type.matcher.v3.MetadataMatcher. envoy.type.v3.RateLimitStrategy. envoy.type.v3.TokenBucket

envoy.config.listener.v3.Listener envoy.config.listener.v3.FilterChain envoy.config.listener.v3.Filter
envoy.config.listener.v3.ApiListener
envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.UpgradeConfig
envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.InternalAddressConfig
envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter
envoy.extensions.filters.network.http_connection_manager.v3.Rds
envoy.extensions.filters.network.http_connection_manager.v3.LocalReplyConfig
envoy.extensions.filters.network.http_connection_manager.v3.ResponseMapper

envoy.config.core.v3.HttpProtocolOptions envoy.config.core.v3.Http1ProtocolOptions
envoy.config.accesslog.v3.AccessLogFilter envoy.config.accesslog.v3.StatusCodeFilter
envoy.config.accesslog.v3.ComparisonFilter envoy.config.core.v3.RuntimeUInt32
envoy.extensions.filters.http.router.v3.Router

envoy.config.route.v3.RouteConfiguration envoy.config.route.v3.VirtualHost envoy.config.route.v3.Route
envoy.config.route.v3.RouteMatch envoy.config.route.v3.RouteAction envoy.config.route.v3.RouteAction.UpgradeConfig
envoy.config.route.v3.HeaderMatcher envoy.config.route.v3.QueryParameterMatcher
envoy.config.route.v3.WeightedCluster. envoy.config.route.v3.FilterConfig envoy.config.route.v3.RateLimit.

envoy.config.cluster.v3.Cluster envoy.config.cluster.v3.CircuitBreakers. envoy.config.core.v3.HealthCheck
envoy.config.endpoint.v3.ClusterLoadAssignment envoy.config.endpoint.v3.LocalityLbEndpoints
envoy.extensions.upstreams.http.v3.HttpProtocolOptions.

envoy.config.ratelimit.v3.RateLimitServiceConfig envoy.config.core.v3.GrpcService envoy.config.core.v3.GrpcService.EnvoyGrpc
envoy.extensions.filters.http.ratelimit.v3.RateLimit envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
envoy.extensions.filters.network.ratelimit.v3.RateLimit envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.
envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig
envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaOverride
envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings.
xds.type.matcher.v3.Matcher. xds.type.matcher.v3.StringMatcher xds.type.matcher.v3.RegexMatcher xds.core.v3.TypedExtensionConfig
envoy.type.matcher.v3.HttpRequestHeaderMatchInput envoy.type.matcher.v3.HttpRequestQueryParamMatchInput

envoy.extensions.filters.http.header_to_metadata.v3.Config. envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata.
envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadata. envoy.extensions.filters.http.set_metadata.v3.Config
envoy.extensions.filters.http.set_metadata.v3.Metadata envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
envoy.extensions.filters.http.jwt_authn.v3.JwtProvider envoy.extensions.filters.http.jwt_authn.v3.RequirementRule
envoy.extensions.filters.http.lua.v3.Lua
envoy.extensions.filters.http.header_mutation.v3.Mutations envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
envoy.config.common.mutation_rules.v3.HeaderMutation.
envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation
envoy.extensions.filters.http.set_filter_state.v3.Config envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue
envoy.extensions.filters.http.fault.v3.HTTPFault envoy.extensions.filters.http.health_check.v3.HealthCheck
`

// sources are the modules with the generated code of Envoy's API and of its dependencies.
var sources = []string{
	"github.com/envoyproxy/go-control-plane/envoy", "github.com/cncf/xds/go", "cel.dev/expr", "google.golang.org/genproto/googleapis/api",
	"google.golang.org/genproto/googleapis/rpc", "go.opentelemetry.io/proto/otlp", "github.com/prometheus/client_model", "github.com/envoyproxy/protoc-gen-validate",
}

// TestSchemaIsCurrent fails if schema.txt differs from the API of the modules that go.mod pins. With -update it writes
// the file.
func TestSchemaIsCurrent(t *testing.T) {
	want := writeSchema(t, descriptors(t))
	if *update {
		if err := os.WriteFile("schema.txt", []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile("schema.txt")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("schema.txt differs from the API of the modules that go.mod pins: run go generate ./envoyconfig/api")
	}
}

// descriptors reads the descriptors of all files of the sources. They are constants in generated code, which is not
// compiled for this: the API has hundreds of packages.
func descriptors(t *testing.T) *protoregistry.Files {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-m", "-json=Path,Dir"}, sources...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	for modules := json.NewDecoder(strings.NewReader(string(out))); modules.More(); {
		var m struct{ Path, Dir string }
		if err := modules.Decode(&m); err != nil || m.Dir == "" {
			t.Fatalf("the source of %s is missing: run go mod download: %v", m.Path, err)
		}
		err := filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".pb.go") || strings.HasSuffix(path, "_vtproto.pb.go") {
				return err
			}
			raw := rawDescriptor(t, path)
			file := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(raw, file); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if len(raw) > 0 && !slices.ContainsFunc(set.GetFile(), func(other *descriptorpb.FileDescriptorProto) bool { return other.GetName() == file.GetName() }) {
				set.File = append(set.GetFile(), file)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Only protobuf's own descriptors are not in the sources.
	protoregistry.GlobalFiles.RangeFilesByPackage("google.protobuf", func(file protoreflect.FileDescriptor) bool {
		set.File = append(set.GetFile(), protodesc.ToFileDescriptorProto(file))
		return true
	})
	files, err := protodesc.FileOptions{AllowUnresolvable: true}.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// rawDescriptor returns the value of the constant or variable whose name ends in _rawDesc.
func rawDescriptor(t *testing.T, path string) (raw []byte) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		values, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range values.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok || len(value.Values) != 1 || !strings.HasSuffix(value.Names[0].Name, "_rawDesc") {
				continue
			}
			ast.Inspect(value.Values[0], func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				switch {
				case ok && literal.Kind == token.STRING:
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					raw = append(raw, text...)
				case ok:
					b, err := strconv.ParseUint(literal.Value, 0, 8)
					if err != nil {
						t.Fatal(err)
					}
					raw = append(raw, byte(b))
				}
				return true
			})
		}
	}
	return raw
}

// writeSchema returns the text of schema.txt; see [schema].
func writeSchema(t *testing.T, files *protoregistry.Files) string {
	t.Helper()
	w := &describer{texts: map[protoreflect.FullName]string{}, kept: strings.Fields(kept)}
	for _, name := range w.kept {
		d, err := files.FindDescriptorByName(protoreflect.FullName(strings.TrimSuffix(name, ".")))
		if err != nil {
			t.Fatal(name, err)
		}
		if m, ok := d.(protoreflect.MessageDescriptor); ok {
			w.message(m)
		}
	}
	var text strings.Builder
	text.WriteString("# Code generated by TestSchemaIsCurrent. DO NOT EDIT.\n")
	names := make([]protoreflect.FullName, 0, len(w.texts))
	for name := range w.texts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		text.WriteString(w.texts[name])
	}
	return text.String()
}

// describer collects the texts of messages.
type describer struct {
	texts map[protoreflect.FullName]string
	kept  []string
}

// keeps reports whether the schema contains a message.
func (w *describer) keeps(name protoreflect.FullName) bool {
	return slices.ContainsFunc(w.kept, func(kept string) bool {
		below, ok := strings.CutSuffix(kept, ".")
		return string(name) == below || ok && strings.HasPrefix(string(name), kept)
	})
}

// message describes a message, and the kept messages that it uses.
func (w *describer) message(d protoreflect.MessageDescriptor) {
	if _, ok := w.texts[d.FullName()]; ok || d.IsMapEntry() || !w.keeps(d.FullName()) {
		return
	}
	w.texts[d.FullName()] = ""
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s\n", d.FullName())
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		fmt.Fprintf(&text, "%s %s\n", f.Name(), w.typeOf(f))
	}
	for i := range d.Messages().Len() {
		w.message(d.Messages().Get(i))
	}
	w.texts[d.FullName()] = text.String()
}

// typeOf returns the name of a field's type, and describes the type.
func (w *describer) typeOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "{}" + w.typeOf(f.MapValue())
	case f.IsList():
		return "[]" + w.single(f)
	default:
		return w.single(f)
	}
}

func (w *describer) single(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Enum() != nil:
		return "name"
	case f.Message() == nil:
		return scalars[f.Kind().String()]
	case w.keeps(f.Message().FullName()):
		w.message(f.Message())
		return string(f.Message().FullName())
	default:
		return cmp.Or(scalars[string(f.Message().FullName())], "object")
	}
}

// scalars are the kinds of protobuf's scalar and well-known types.
var scalars = map[string]string{
	"string": "text", "google.protobuf.StringValue": "text", "bytes": "text", "google.protobuf.BytesValue": "text",
	"google.protobuf.FieldMask": "text", "google.protobuf.Timestamp": "text",
	"bool": "bool", "google.protobuf.BoolValue": "bool",
	"int32": "number", "google.protobuf.Int32Value": "number", "sint32": "number",
	"int64": "number", "google.protobuf.Int64Value": "number", "sint64": "number",
	"uint32": "number", "google.protobuf.UInt32Value": "number", "fixed32": "number",
	"uint64": "number", "google.protobuf.UInt64Value": "number", "fixed64": "number",
	"float": "number", "google.protobuf.FloatValue": "number", "double": "number", "google.protobuf.DoubleValue": "number",
	"google.protobuf.Duration": "duration", "google.protobuf.Any": "any",
	"google.protobuf.Value": "value", "google.protobuf.ListValue": "value",
}
