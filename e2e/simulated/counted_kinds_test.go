package simulated_test

import (
	"fmt"
	"time"
)

// request is a line of a generated log.
type request struct {
	at            time.Time
	address, path string
	status        int
	agent         string
}

func (r *request) clf() string { return r.at.Format("02/Jan/2006:15:04:05 -0700") }

// combined formats a line in the combined log format.
func (r *request) combined() string {
	return fmt.Sprintf(`%s - - [%s] "GET %s HTTP/1.1" %d 512 "-" "%s"`, r.address, r.clf(), r.path, r.status, r.agent)
}

// countedKind is a kind of log: the format of its lines.
type countedKind struct {
	line func(r *request) string
	// hasPort is true if addresses have a port.
	hasPort bool
}

// counted contains the kinds of logs that count.py supports, by their names there.
var counted = map[string]countedKind{
	"common": {line: func(r *request) string {
		return fmt.Sprintf(`%s - - [%s] "GET %s HTTP/1.1" %d 512`, r.address, r.clf(), r.path, r.status)
	}},
	"combined": {line: (*request).combined},
	"nginx-json": {line: func(r *request) string {
		return fmt.Sprintf(`{"time_local":"%s","remote_addr":"%s","request":"GET %s HTTP/1.1","status": "%d","http_user_agent":"%s"}`, r.clf(), r.address, r.path, r.status, r.agent)
	}},
	"cri": {line: func(r *request) string {
		return fmt.Sprintf(`%s stdout F {"start_time":"%s","downstream_remote_address":"%s:1","response_code":%d,"path":"%s"}`,
			r.at.Add(time.Minute).Format(time.RFC3339Nano), r.at.UTC().Format("2006-01-02T15:04:05.000Z"), r.address, r.status, r.path)
	}, hasPort: true},
}
