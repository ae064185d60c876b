package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPage checks the content of the page: it has the report's content, values are escaped, and
// each diagram has a title and bars.
func TestPage(t *testing.T) {
	const hostile = `<script>alert(1)</script>`
	var log strings.Builder
	for i := range 300 {
		log.WriteString(usersLine(noon.Add(time.Duration(i)*time.Second), 200, fmt.Sprint("u", i%7)))
		log.WriteString(usersLine(noon.Add(time.Duration(i)*time.Second), 429, hostile))
	}
	report := simulateUsers(t, func(o *Options) {
		o.ShowValues = true
		o.Recommend = 75
		o.RulesName = "less.yaml"
		o.Against = []Alternative{{"more.yaml", compile(t, strings.Replace(perUser, ": 3", ": 20", 1))}}
	}, logOf("log", log.String()))
	var b bytes.Buffer
	if err := report.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"600 requests in 4m59s", "user=&lt;script&gt;", "Against more.yaml", "600", "agree on", "<strong>Recommended:</strong> 30/minute (checked: 25.0 % over)", "75 % of its hits"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	if !strings.Contains(page, "<title>log by less.yaml: sluice simulate</title>") || !strings.Contains(page, "<h1>log by less.yaml</h1>") {
		t.Error("the page's title does not name the log and the rules")
	}
	if strings.Contains(page, "<th></th>") || strings.Count(page, "<th>share over</th>") != 2 {
		t.Error("a column has no heading")
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "http") {
		t.Error("the page has a script, or loads other resources")
	}
	for _, want := range []string{`role="img" aria-label="Hits by time"`, "at most 4:"} {
		if strings.Count(page, want) != 2 {
			t.Errorf("the page has %q %d times, want 2", want, strings.Count(page, want))
		}
	}
	if bars := strings.Count(page, `<i class="admitted" style="height: `); bars == 0 || bars == strings.Count(page, "<div><i") {
		t.Errorf("%d bars have a part within the limit", bars)
	}
}

// TestReportWithoutLimits has a request that matches no limit.
func TestReportWithoutLimits(t *testing.T) {
	report := simulateUsers(t, func(o *Options) { o.Templates, o.Recommend = []*Template{newTemplate(t, "name={x-user}")}, 99 }, logOf("log", usersLine(noon, 200, "al")))
	var text, page strings.Builder
	if err := errors.Join(report.WriteText(&text), report.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "\n\nno requests for any limit: ") || strings.Contains(text.String(), "hits") || strings.Contains(text.String(), "recommended") {
		t.Errorf("the report is\n%s", text.String())
	}
	if !strings.Contains(page.String(), "No requests for any limit: ") {
		t.Error("the page does not report that no limit has requests")
	}
}
