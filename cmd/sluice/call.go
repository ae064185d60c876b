package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/client"
)

type callCmd struct {
	Addr       string        `type:"address" default:"127.0.0.1:8081" placeholder:"ADDR" help:"gRPC listener of a running service: host:port, unix:///path or unix:@name."`
	Domain     string        `required:"" short:"d" placeholder:"DOMAIN" help:"Domain of the request."`
	Descriptor []string      `required:"" placeholder:"K=V,K2=V2" sep:"none" help:"Entries of a descriptor, in order. A backslash escapes the next character. Repeat for several descriptors."`
	Hits       []int64       `placeholder:"N" help:"Hits of each descriptor, in order. 0 only reads the counter, negative numbers refund hits. A single number applies to all."`
	Limit      []string      `placeholder:"LIMIT" help:"Limit override of each descriptor, in order: 5/hour, 100/10minute, or - for none."`
	Count      int           `type:"count" range:"1..2147483647" default:"1" short:"n" help:"Number of requests."`
	Rate       float64       `placeholder:"R" help:"Requests per second. Default: no limit."`
	Timeout    time.Duration `range:"1ns..24h" default:"1s" help:"Deadline of each request."`

	dialFlags  `embed:""`
	outputFlag `embed:""`
}

func (k *callCmd) Validate() error {
	if !(k.Rate >= 0) { // rejects NaN too
		return fmt.Errorf("--rate is %v: must not be negative", k.Rate)
	}
	if err := k.check(); err != nil {
		return err
	}
	_, err := k.descriptors()
	return err
}

func (k *callCmd) Run(ctx context.Context, c console) error {
	ctx, stop := signalContext(ctx)
	defer stop()
	ds, err := k.descriptors()
	if err != nil {
		return err
	}
	secure, err := k.tls()
	if err != nil {
		return err
	}
	client, err := client.Dial(k.Addr, secure)
	if err != nil {
		return err
	}
	defer client.Close()

	// With a higher --count, responses are counted but not printed.
	const maxPrinted = 20
	var ok, over, failed int
	var last error
	start := time.Now()
	for i := range k.Count {
		if k.Rate > 0 && !sleepUntil(ctx, start.Add(time.Duration(float64(i)/k.Rate*float64(time.Second)))) {
			break
		}
		callCtx, cancel := context.WithTimeout(ctx, k.Timeout)
		answer, err := client.Call(callCtx, k.Domain, ds)
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			failed++
			last = err
		case answer.OverLimit:
			over++
		default:
			ok++
		}
		if err == nil && (k.Output == "json" || k.Count <= maxPrinted) {
			if err := k.print(c, json.RawMessage(answer.JSON), func() error { return k.writeAnswer(c, answer, ds) }); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	if k.Count > 1 && k.Output == "text" {
		fmt.Fprintf(c.out, "%d OK, %d OVER_LIMIT, %s in %v\n", ok, over, rules.Count(failed, "error"),
			time.Since(start).Round(time.Millisecond))
	}
	if last != nil {
		return fmt.Errorf("call %s: %w", k.Addr, last)
	}
	return nil
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (k *callCmd) writeAnswer(c console, a client.Answer, ds []descriptors.Descriptor) error {
	code := "OK"
	if a.OverLimit {
		code = "OVER_LIMIT"
	}
	fmt.Fprintln(c.out, code)
	for i, s := range a.Statuses {
		name := "?"
		if i < len(ds) {
			name = k.Descriptor[i]
		}
		fmt.Fprintln(c.out, format.Escape(fmt.Sprintf("  %s: %s", name, s)))
	}
	if !a.Limited {
		fmt.Fprintf(c.out, "no limit applies: the domain %q exempts this request, has no rule for it, or is not configured (see sluice explain)\n", k.Domain)
	}
	return nil
}

func (k *callCmd) descriptors() ([]descriptors.Descriptor, error) {
	for _, flag := range []struct {
		name  string
		times int
	}{{"hits", len(k.Hits)}, {"limit", len(k.Limit)}} {
		if flag.times > 1 && flag.times != len(k.Descriptor) {
			return nil, fmt.Errorf("--%s is given %d times: must be once, or once for each of the %d descriptors",
				flag.name, flag.times, len(k.Descriptor))
		}
	}
	ds := make([]descriptors.Descriptor, len(k.Descriptor))
	for i, text := range k.Descriptor {
		entries, err := descriptors.ParseEntries(text)
		if err != nil {
			return nil, fmt.Errorf("--descriptor: %w", err)
		}
		d := &ds[i]
		d.Entries = entries
		if len(k.Hits) > 0 {
			n := k.Hits[min(i, len(k.Hits)-1)]
			d.HasHits = true
			d.Refund = n < 0
			d.Hits = uint64(max(n, -n))
		}
		if len(k.Limit) > 0 {
			if text := k.Limit[min(i, len(k.Limit)-1)]; text != "-" {
				if d.Override, err = descriptors.ParseOverride(text); err != nil {
					return nil, fmt.Errorf("--%w", err)
				}
				d.HasOverride = true
			}
		}
	}
	return ds, nil
}
