package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// reportSchema compiles the schema of reports.
func reportSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(report.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("report.json", parsed); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("report.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// asJSON converts a value for validation.
func asJSON(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestReportSchema validates several reports. The schema must have all fields and no others: a
// report with all fields set is valid, and an additional field is invalid.
func TestReportSchema(t *testing.T) {
	schema := reportSchema(t)
	var log strings.Builder
	for i := range 20 {
		log.WriteString(usersLine(noon.Add(time.Duration(i)*time.Second), 429, fmt.Sprint("u", i%3)))
	}
	for name, change := range map[string]func(*Options){
		"plain": func(*Options) {},
		"all": func(o *Options) {
			o.Recommend, o.Against = 60, []Alternative{{"less.yaml", o.Rules}, {"more.yaml", o.Rules}}
		},
		"no limit": func(o *Options) { o.Templates = []*Template{newTemplate(t, "name={x-user}")} },
	} {
		if err := schema.Validate(asJSON(t, simulateUsers(t, change, logOf("log", log.String()+"nonsense\n")))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	full := &report.Report{}
	fill(reflect.ValueOf(full).Elem())
	full.Version, full.Source = 1, "the log"
	whole := asJSON(t, full)
	if err := schema.Validate(whole); err != nil {
		t.Errorf("a report with every field: %v", err)
	}
	objects := 0
	eachObject(whole, func(o map[string]any) {
		objects++
		o["more"] = 1
		if schema.Validate(whole) == nil {
			t.Errorf("an additional field is valid in %v", o)
		}
		delete(o, "more")
	})
	if objects < 15 {
		t.Errorf("%d objects checked, want all", objects)
	}
}

// fill sets each field to a nonzero value, and each list to one element.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(noon))
			return
		}
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	default:
		v.SetUint(1)
	}
}

func eachObject(v any, use func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			eachObject(inner, use)
		}
		use(v)
	case []any:
		for _, inner := range v {
			eachObject(inner, use)
		}
	}
}
