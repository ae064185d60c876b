package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-ratelimit/sluice/bench/report"
)

// accessLog is a log that `sluice simulate` reads from a pipe.
type accessLog struct {
	name, title, goal string
	addresses         int // number of client addresses, in turn
	line              func(to []byte, number, address int) []byte
}

var accessLogs = []accessLog{
	{"text", "Envoy's default format, 10,000 addresses", "1,000,000", 10_000, defaultLine},
	{"json", "Envoy Gateway's JSON, 10,000 addresses", "700,000", 10_000, gatewayLine},
	{"keys", "Envoy's default format, a million addresses", "", 1_000_000, defaultLine},
}

// defaultLine appends a line of Envoy's default format.
func defaultLine(to []byte, number, address int) []byte {
	to = append(to, '[')
	to = appendTime(to, number)
	to = append(to, `] "GET /api/v1/items/`...)
	to = strconv.AppendInt(to, int64(number%500), 10)
	to = append(to, ` HTTP/1.1" 200 - 0 1482 37 35 "`...)
	to = appendAddress(to, address)
	to = append(to, `" "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0" "`...)
	to = appendID(to, number)
	return append(to, "\" \"shop.example.com\" \"10.42.3.17:8080\"\n"...)
}

// gatewayLine appends a line of Envoy Gateway's default format.
func gatewayLine(to []byte, number, address int) []byte {
	to = append(to, `{":authority":"shop.example.com","bytes_received":0,"bytes_sent":1482,"connection_termination_details":null,`+
		`"downstream_local_address":"10.42.3.9:10080","downstream_remote_address":"10.42.0.1:51234","duration":37,"method":"GET","protocol":"HTTP/1.1",`+
		`"requested_server_name":null,"response_code":200,"response_code_details":"via_upstream","response_flags":"-",`+
		`"route_name":"httproute/default/shop/rule/0/match/0/shop_example_com","start_time":"`...)
	to = appendTime(to, number)
	to = append(to, `","upstream_cluster":"httproute/default/shop/rule/0","upstream_host":"10.42.3.17:8080","upstream_local_address":"10.42.3.9:44712",`+
		`"upstream_transport_failure_reason":null,"user-agent":"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",`+
		`"x-envoy-origin-path":"/api/v1/items/`...)
	to = strconv.AppendInt(to, int64(number%500), 10)
	to = append(to, `","x-envoy-upstream-service-time":"35","x-forwarded-for":"`...)
	to = appendAddress(to, address)
	to = append(to, `","x-request-id":"`...)
	to = appendID(to, number)
	return append(to, "\"}\n"...)
}

// appendTime appends the time of a line. There are 5,000 lines per second.
func appendTime(to []byte, number int) []byte {
	at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC).Add(time.Duration(number) * 200 * time.Microsecond)
	return at.AppendFormat(to, "2006-01-02T15:04:05.000Z")
}

func appendAddress(to []byte, address int) []byte {
	return fmt.Appendf(to, "10.%d.%d.%d", address>>16, address>>8&255, address&255)
}

func appendID(to []byte, number int) []byte {
	return fmt.Appendf(to, "%08x-1c5e-4c8f-9d3b-2f6a7e0b9c41", number)
}

// reading is the cost of reading a log once.
type reading struct {
	perCore, perSecond float64 // lines
	peak               float64 // MiB
}

// simulate measures `sluice simulate` and prints its table.
func simulate(ctx context.Context, w *testbed, o *options, page *page) error {
	page.Line("## sluice simulate\n")
	page.Line("%d lines from a pipe, four limits each; the rate per core is by CPU time. Medians of %d rounds.\n", o.lines, o.rounds)
	page.Head("log", "bytes per line", "goal", "lines per second and core (min)", "lines per second", "peak resident memory, MiB")
	found := make([][]reading, len(o.logs))
	for round := range o.rounds {
		for i, log := range o.logs {
			fmt.Fprintf(w.progress, "simulate: round %d of %d, %s\n", round+1, o.rounds, log.title)
			r, err := w.read(ctx, &log, o.lines)
			if err != nil {
				return fmt.Errorf("%s: %w", log.title, err)
			}
			found[i] = append(found[i], r)
		}
	}
	for i, log := range o.logs {
		of := func(f func(reading) float64) report.Spread {
			return report.Over(o.rounds, func(n int) float64 { return f(found[i][n]) })
		}
		perCore := of(func(r reading) float64 { return r.perCore })
		page.Row(log.title, strconv.Itoa(len(log.line(nil, 0, 0))), log.goal, fmt.Sprintf("%.0f (%.0f)", perCore.Median, perCore.Min),
			fmt.Sprintf("%.0f", of(func(r reading) float64 { return r.perSecond }).Median), fmt.Sprintf("%.0f", of(func(r reading) float64 { return r.peak }).Max))
	}
	page.Line("")
	return nil
}

// read runs simulate on a log.
func (w *testbed) read(ctx context.Context, log *accessLog, lines int) (r reading, err error) {
	cmd := exec.CommandContext(ctx, w.sluice, "simulate", "-", "--config", filepath.Join(w.dir, "simulated.yaml"),
		"--descriptor", "address={x-forwarded-for}", "--descriptor", "path={:path}")
	var out strings.Builder
	cmd.Stdout = &out
	cmd.Stderr = &out
	in, err := cmd.StdinPipe()
	if err != nil {
		return r, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	// Its own error is more informative than the broken pipe.
	written := errors.Join(log.write(in, lines), in.Close())
	if err := cmp.Or(cmd.Wait(), written); err != nil {
		return r, fmt.Errorf("%w\n%s", err, &out)
	}
	elapsed := time.Since(start)
	requests, _, _ := strings.Cut(out.String(), " ")
	if got := strings.ReplaceAll(requests, ",", ""); got != strconv.Itoa(lines) {
		return r, fmt.Errorf("it read %s requests, want %d:\n%s", got, lines, &out)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	r.perCore, r.perSecond = float64(lines)/used.Seconds(), float64(lines)/elapsed.Seconds()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.peak = float64(usage.Maxrss) / (1 << 10)
	}
	return r, nil
}

// write writes lines of the log.
func (l *accessLog) write(to io.Writer, lines int) error {
	const enough = 1 << 20
	buffer := make([]byte, 0, enough+enough/8)
	for number := range lines {
		buffer = l.line(buffer, number, number%l.addresses)
		if len(buffer) > enough || number == lines-1 {
			if _, err := to.Write(buffer); err != nil {
				return err
			}
			buffer = buffer[:0]
		}
	}
	return nil
}
