package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// endless is a body that counts the bytes that are read of it.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	if e.read > 1<<20 {
		return 0, io.ErrUnexpectedEOF
	}
	e.read += len(b)
	for i := range b {
		b[i] = 'a'
	}
	return len(b), nil
}

// TestProfilesReadNoLargeBody sends forms to the paths of profiles. Each listener looks at these paths, before any right is
// checked, and must not read a body then. The profiles themselves read small ones.
func TestProfilesReadNoLargeBody(t *testing.T) {
	for name, test := range map[string]struct {
		handler http.Handler
		most    int
	}{
		"public": {publicHandler(func() bool { return true }, jsonOff), 0},
		"debug":  {profiles[profilesPath+"symbol"], 2 * maxHTTPBody},
		"index":  {profiles[profilesPath], 2 * maxHTTPBody},
	} {
		for _, kind := range []string{"application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
			body := &endless{}
			r := httptest.NewRequest(http.MethodPost, profilesPath+"heap", body)
			if r.Header.Set("Content-Type", kind); strings.HasPrefix(kind, "multipart") {
				r.Body = io.NopCloser(io.MultiReader(strings.NewReader("--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n"), body))
			}
			newHTTPServer(test.handler, maxHTTPHead, zap.NewNop()).Handler.ServeHTTP(httptest.NewRecorder(), r)
			if body.read > test.most {
				t.Errorf("%s, %s: %d bytes of the body are read, want at most %d", name, kind, body.read, test.most)
			}
		}
	}
}
