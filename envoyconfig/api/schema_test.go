package api

import (
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

	"github.com/envoyproxy/go-control-plane/envoy/annotations"
	"github.com/envoyproxy/protoc-gen-validate/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	// Dependencies of Envoy's API that are not in sources.
	_ "google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	_ "google.golang.org/protobuf/types/known/emptypb"
	_ "google.golang.org/protobuf/types/known/structpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
	_ "google.golang.org/protobuf/types/known/wrapperspb"
)

var update = flag.Bool("update", false, "write schema.txt")

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
	w := &describer{texts: map[protoreflect.FullName]string{}}
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		name := string(file.Package())
		of := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		version := name[strings.LastIndexByte(name, '.')+1:]
		if !slices.ContainsFunc([]string{"envoy.config.", "envoy.extensions.", "envoy.type.", "envoy.watchdog.", "xds.type."}, of) || !strings.HasPrefix(version, "v3") && !strings.Contains(version, "alpha") {
			return true
		}
		for i := range file.Messages().Len() {
			w.message(file.Messages().Get(i))
		}
		return true
	})
	d, err := files.FindDescriptorByName("udpa.type.v1.TypedStruct")
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := d.(protoreflect.MessageDescriptor); ok {
		w.message(m)
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

// describer collects the texts of messages and enums.
type describer struct {
	texts map[protoreflect.FullName]string
}

// message describes a message and all messages and enums that it uses.
func (w *describer) message(d protoreflect.MessageDescriptor) {
	if _, ok := w.texts[d.FullName()]; ok || d.IsMapEntry() || wellKnown(d) != "" {
		return
	}
	w.texts[d.FullName()] = ""
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s", d.FullName())
	for i := range d.Oneofs().Len() {
		if o := d.Oneofs().Get(i); isTrue(o, validate.E_Required) {
			fmt.Fprintf(&text, " %s", o.Name())
		}
	}
	text.WriteByte('\n')
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		fmt.Fprintf(&text, "%s %s", f.Name(), w.typeOf(f))
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			fmt.Fprintf(&text, " |%s", o.Name())
		}
		if isTrue(f, annotations.E_DisallowedByDefault) {
			text.WriteString(" deprecated")
		}
		if rules, ok := proto.GetExtension(f.Options(), validate.E_Rules).(*validate.FieldRules); ok && rules != nil {
			writeRules(&text, "", rules.ProtoReflect())
		}
		text.WriteByte('\n')
	}
	for i := range d.Messages().Len() {
		w.message(d.Messages().Get(i))
	}
	w.texts[d.FullName()] = text.String()
}

// isTrue reports whether a boolean option is set.
func isTrue(d protoreflect.Descriptor, option protoreflect.ExtensionType) bool {
	return proto.GetExtension(d.Options(), option) == true
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
	relative := func(name protoreflect.FullName) string {
		if below, ok := strings.CutPrefix(string(name), string(f.ParentFile().Package())+"."); ok {
			return "." + below
		}
		return string(name)
	}
	switch {
	case f.Enum() != nil:
		w.enum(f.Enum())
		return relative(f.Enum().FullName())
	case f.Message() == nil:
		return f.Kind().String()
	case wellKnown(f.Message()) != "":
		return wellKnown(f.Message())
	default:
		w.message(f.Message())
		return relative(f.Message().FullName())
	}
}

// wellKnown returns the name of a message of protobuf itself without its package, "" for others.
func wellKnown(d protoreflect.MessageDescriptor) string {
	name, ok := strings.CutPrefix(string(d.FullName()), "google.protobuf.")
	if !ok || strings.Contains(name, ".") || strings.HasSuffix(name, "Options") || strings.HasSuffix(name, "Proto") {
		return ""
	}
	return name
}

// enum describes an enum.
func (w *describer) enum(d protoreflect.EnumDescriptor) {
	if _, ok := w.texts[d.FullName()]; ok {
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\nenum %s\n", d.FullName())
	for i := range d.Values().Len() {
		v := d.Values().Get(i)
		fmt.Fprintf(&text, "%s %d", v.Name(), v.Number())
		if isTrue(v, annotations.E_DisallowedByDefaultEnum) {
			text.WriteString(" deprecated")
		}
		text.WriteByte('\n')
	}
	w.texts[d.FullName()] = text.String()
}

// writeRules writes the rules of protoc-gen-validate that are set: name=value, with a dot below items, keys and values.
func writeRules(text *strings.Builder, prefix string, rules protoreflect.Message) {
	fields := rules.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !rules.Has(f) || f.Name() == "required" && !rules.Get(f).Bool() {
			continue
		}
		name := prefix + string(f.Name())
		value := rules.Get(f)
		switch {
		case f.IsList():
			for j := range value.List().Len() {
				writeRule(text, name, f, value.List().Get(j))
			}
		case f.Message() == nil || f.Message().FullName() == "google.protobuf.Duration":
			writeRule(text, name, f, value)
		case rules.Descriptor().Name() == "FieldRules": // of one type
			writeRules(text, prefix, value.Message())
		default: // items, keys, values
			writeRules(text, name+".", value.Message())
		}
	}
}

func writeRule(text *strings.Builder, name string, f protoreflect.FieldDescriptor, value protoreflect.Value) {
	shown := value.String()
	if f.Message() != nil {
		d := durationpb.Duration{}
		proto.Merge(&d, value.Message().Interface())
		shown = strconv.FormatFloat(d.AsDuration().Seconds(), 'f', -1, 64) + "s"
	}
	if f.Kind() == protoreflect.EnumKind {
		shown = string(f.Enum().Values().ByNumber(value.Enum()).Name())
	}
	if shown == "" || strings.ContainsAny(shown, " \"") || strings.Trim(strconv.Quote(shown), `"`) != shown {
		shown = strings.ReplaceAll(strconv.Quote(shown), " ", `\x20`)
	}
	fmt.Fprintf(text, " %s=%s", name, shown)
}
