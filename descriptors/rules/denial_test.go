package rules

import "testing"

// TestDeniedHeadersOfConnections checks that the headers of a connection are reserved: HTTP/2
// clients reset the stream of a response that has them.
func TestDeniedHeadersOfConnections(t *testing.T) {
	for _, name := range []string{"Connection", "keep-alive", "Proxy-Connection", "transfer-encoding", "TE", "upgrade"} {
		if err := (&DeniedResponse{}).AddHeader(name, "x"); err == nil {
			t.Errorf("the header %s is accepted", name)
		}
	}
}

// TestDeniedBodyIsJSON checks that names cannot make a body of a JSON type invalid.
func TestDeniedBodyIsJSON(t *testing.T) {
	for body, valid := range map[string]bool{
		`{"a": "{name} of {domain}", "b": {limit}}`: true,
		`{"a": {limit}{name}}`:                      false,
		`{"a": 1{domain}}`:                          false,
		`{"a": {name}}`:                             false,
		`{"a": 1},{"a": 1}`:                         false,
	} {
		d := &DeniedResponse{}
		if err := d.SetContentType("application/json"); err != nil {
			t.Fatal(err)
		}
		if err := d.SetBody(body); (err == nil) != valid {
			t.Errorf("%s: error %v, want valid %v", body, err, valid)
		}
	}
}
