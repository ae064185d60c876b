package luahost_test

import (
	"bytes"
	"net"
	"testing"

	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// FuzzServeConn sends arbitrary bytes to a server, which must neither panic nor hang, and whose
// memory the received bytes bound.
func FuzzServeConn(f *testing.F) {
	for _, seed := range []string{
		"*1\r\n$4\r\nPING\r\n", "PING\r\n", "*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
		"*-1\r\n", "*1048577\r\n", "*1048576\r\n$1", "*1\r\n$67108865\r\n", "*1\r\n$67108864\r\nx", "*1\r\n$-1\r\n", "*1\r\n:1\r\n", "*0\r\n\r\n", "*99999999999999999999\r\n",
		"EVALSHA x -9223372036854775808\r\n", "SET a 1 PX 9223372036854775807\r\nTTL a\r\n",
		"ZADD z nan a\r\nZADD z 1 a\r\nZRANGE z 0 -1 WITHSCORES\r\nZCOUNT z ( (inf\r\n", "HSET h a b c\r\nLTRIM l -1 -9223372036854775808\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if upper := bytes.ToUpper(data); bytes.Contains(upper, []byte("EVAL ")) || bytes.Contains(upper, []byte("EVAL\r")) || bytes.Contains(upper, []byte("SCRIPT")) {
			t.Skip("scripts are not bounded: they are those of the tests")
		}
		s := luahost.NewServer()
		client, server := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			s.ServeConn(server)
		}()
		go func() {
			_, _ = client.Write(data)
			_, _ = client.Write([]byte("\r\nQUIT\r\n")) // synchronous, so that all was read
			_ = client.Close()
		}()
		buf := make([]byte, 1024)
		for {
			if _, err := client.Read(buf); err != nil {
				break
			}
		}
		<-served
		if n := s.Commands()["GET"]; n > len(data) {
			t.Errorf("%d commands of %d bytes", n, len(data))
		}
	})
}
