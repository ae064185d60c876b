import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.TlsChannelCredentials;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Makes calls with grpc-java. Input and output are described in client_test.go.
 *
 * <p>java Calls.java HOST:PORT [FILE]
 */
final class Calls {
  private static final MethodDescriptor.Marshaller<byte[]> BYTES =
      new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(byte[] message) {
          return new ByteArrayInputStream(message);
        }

        @Override
        public byte[] parse(InputStream in) {
          try {
            return in.readAllBytes();
          } catch (IOException e) {
            throw new UncheckedIOException(e);
          }
        }
      };

  private static final MethodDescriptor<byte[], byte[]> METHOD =
      MethodDescriptor.<byte[], byte[]>newBuilder(BYTES, BYTES)
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
          .build();

  public static void main(String[] args) throws Exception {
    var credentials =
        args.length > 1
            ? TlsChannelCredentials.newBuilder().trustManager(new File(args[1])).build()
            : InsecureChannelCredentials.create();
    ManagedChannel channel = Grpc.newChannelBuilder(args[0], credentials).build();
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = lines.readLine()) != null; ) {
      String[] step = line.split(" ");
      var begun = new ArrayList<ClientCall<byte[], byte[]>>();
      List<CompletableFuture<String>> answers = new ArrayList<>();
      if (!step[4].equals("-")) {
        answers.add(begin(channel, step, step[4], begun));
      }
      for (int i = Integer.parseInt(step[0]); i > 0; i--) {
        answers.add(begin(channel, step, step[5], begun));
      }
      if (step[3].equals("1")) {
        System.out.println("begun");
        lines.readLine();
        for (var call : begun) {
          call.cancel("nobody waits", null);
        }
      }
      Map<String, Integer> counts = new TreeMap<>();
      for (var answer : answers) {
        counts.merge(answer.get(), 1, Integer::sum);
      }
      counts.forEach((text, n) -> System.out.println(n + " " + text));
      System.out.println();
    }
    channel.shutdownNow().awaitTermination(1, TimeUnit.MINUTES);
  }

  private static CompletableFuture<String> begin(
      ManagedChannel channel, String[] step, String message, List<ClientCall<byte[], byte[]>> begun) {
    var options = CallOptions.DEFAULT.withDeadlineAfter(Long.parseLong(step[1]), TimeUnit.MILLISECONDS);
    var headers = new Metadata();
    int large = Integer.parseInt(step[2]);
    if (large > 0) {
      headers.put(Metadata.Key.of("x-large", Metadata.ASCII_STRING_MARSHALLER), "m".repeat(large));
    }
    var answer = new CompletableFuture<String>();
    ClientCall<byte[], byte[]> call = channel.newCall(METHOD, options);
    begun.add(call);
    call.start(
        new ClientCall.Listener<>() {
          private byte[] reply = {};

          @Override
          public void onMessage(byte[] message) {
            reply = message;
          }

          @Override
          public void onClose(Status status, Metadata trailers) {
            answer.complete(
                status.isOk() ? name(reply) : status.getCode() + ": " + oneLine(status.getDescription()));
          }
        },
        headers);
    call.request(2);
    call.sendMessage(HexFormat.of().parseHex(message));
    call.halfClose();
    return answer;
  }

  private static String oneLine(String text) {
    return text == null ? "" : text.replace('\n', ' ');
  }

  private static String name(byte[] reply) {
    String all = HexFormat.of().formatHex(reply);
    // overall_code is the first field.
    if (all.startsWith("0801")) {
      return "OK";
    }
    return all.startsWith("0802") ? "OVER_LIMIT" : all;
  }
}
