package store

import (
	"fmt"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
	"github.com/sluice-ratelimit/sluice/store/sentinel"
)

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

func TestMessages(t *testing.T) {
	for _, tt := range []struct {
		channel, text, next string
		refresh             bool
	}{
		{sentinel.Switched, "main 127.0.0.1 1 127.0.0.1 2", "", true},
		{sentinel.Switched, "other 127.0.0.1 1 127.0.0.1 2", "", false},
		{sentinel.Switched, "main", "", false},
		{sentinel.Choosing, "slave x:1 127.0.0.1 7 @ main 127.0.0.1 1", "127.0.0.1:7", true},
		{sentinel.Promoting, "slave x:1 ::1 7 @ main ::2 1", "[::1]:7", true},
		{sentinel.Promoting, "slave x:1 127.0.0.1 7 @ other 127.0.0.1 1", "", false},
		{sentinel.Promoting, "slave x:1 127.0.0.1 77777 @ main 127.0.0.1 1", "", false},
		{sentinel.Promoting, "slave x:1 127.0.0.1 7 @", "", false},
		{sentinel.Promoting, "", "", false},
	} {
		s, err := New(Options{Server: redis.Server{Master: "main", Sentinels: []string{"a:1"}}, Timeout: longTimeout, Fallback: Deny})
		must.OK(t, err)
		var d resp.Decoder
		var r resp.Reply
		r.Reset(redis.ShortReply)
		if _, _, err := d.Decode([]byte("*3\r\n"+bulk("message")+bulk(tt.channel)+bulk(tt.text)), &r); err != nil {
			t.Fatal(err)
		}
		s.main.watch.HandleMessage("asked:1", &r)
		if got := s.main.watch.Candidate; got != tt.next || len(s.main.refresh) > 0 != tt.refresh {
			t.Errorf("%s %q: candidate %q, refresh %v; want %q, %v", tt.channel, tt.text, got, len(s.main.refresh) > 0, tt.next, tt.refresh)
		}
	}
}
