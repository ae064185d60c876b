package clients_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// callByGRPCGo is the program of the grpc-go [client]. It returns the exit code.
func callByGRPCGo(args []string) int {
	if err := callsByGRPCGo(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func callsByGRPCGo(args []string) error {
	creds := insecure.NewCredentials()
	if len(args) > 1 {
		var err error
		if creds, err = credentials.NewClientTLSFromFile(args[1], ""); err != nil {
			return err
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+args[0], grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer conn.Close()
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil // end of input
		}
		var (
			n, milliseconds, header, cancels int
			first, request                   string
		)
		if _, err := fmt.Sscan(line, &n, &milliseconds, &header, &cancels, &first, &request); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(milliseconds)*time.Millisecond)
		if header > 0 {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-large", strings.Repeat("m", header))
		}
		answers := make(chan string, n+1)
		var wg sync.WaitGroup
		begin := func(text string) error {
			message, err := hex.DecodeString(text)
			if err != nil {
				return err
			}
			m := new(rls.RateLimitRequest)
			if err := proto.Unmarshal(message, m); err != nil {
				return err
			}
			wg.Go(func() {
				reply, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, m)
				answers <- answer(reply, err)
			})
			return nil
		}
		if first != "-" {
			err = begin(first)
		}
		for range n {
			if err == nil {
				err = begin(request)
			}
		}
		if cancels == 1 {
			fmt.Fprintln(os.Stdout, "begun")
			_, _ = lines.ReadString('\n') // end of input also cancels
			cancel()
		}
		wg.Wait()
		cancel()
		if err != nil {
			return err
		}
		close(answers)
		counts := map[string]int{}
		for a := range answers {
			counts[a]++
		}
		for text, n := range counts {
			fmt.Fprintln(os.Stdout, n, text)
		}
		fmt.Fprintln(os.Stdout)
	}
}

func answer(reply *rls.RateLimitResponse, err error) string {
	if err == nil {
		return reply.GetOverallCode().String()
	}
	s := status.Convert(err)
	name, known := map[codes.Code]string{ // spelling of the other clients
		codes.Canceled: "CANCELLED", codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.Unknown: "UNKNOWN",
	}[s.Code()]
	if !known {
		name = s.Code().String()
	}
	return name + ": " + s.Message()
}
