package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Good and bad clients of a running server, many at once: every good one must get the text that it
 * got when it was alone, and afterwards nothing may run or wait. It needs nothing but the JDK:
 * {@code java ServerLoad.java http://127.0.0.1:8080 [REQUESTS]}. Exits with 1 if something is
 * wrong.
 */
final class ServerLoad {
  private static final Pattern TEXT = Pattern.compile("\"text\":\"((?:[^\"\\\\]|\\\\.)*)\"");
  private static final int TEXTS = 12;

  private final URI server;
  private final HttpClient client = HttpClient.newHttpClient();
  private final List<String> expected = new ArrayList<>();
  private final Map<String, Integer> outcomes = new ConcurrentHashMap<>();

  private ServerLoad(URI server) {
    this.server = server;
  }

  public static void main(String[] args) throws Exception {
    int requests = args.length > 1 ? Integer.parseInt(args[1]) : 5000;
    System.exit(new ServerLoad(URI.create(args[0])).run(requests) ? 0 : 1);
  }

  private boolean run(int requests) throws Exception {
    for (int i = 0; i < TEXTS; i++) {
      expected.add(text(ask(body(i, false))));
    }
    List<Callable<Void>> tasks = new ArrayList<>();
    for (int i = 0; i < requests; i++) {
      int number = i;
      tasks.add(
          () -> {
            String outcome = outcome(number);
            outcomes.merge(outcome, 1, Integer::sum);
            return null;
          });
    }
    long start = System.nanoTime();
    try (ExecutorService threads = Executors.newFixedThreadPool(12)) {
      for (Future<Void> done : threads.invokeAll(tasks)) {
        done.get();
      }
    }
    System.out.printf("%d requests in %.1f s%n", requests, (System.nanoTime() - start) / 1e9);
    outcomes.forEach((outcome, count) -> System.out.printf("%6d %s%n", count, outcome));
    boolean idle = false;
    for (int i = 0; i < 100 && !idle; i++) {
      Thread.sleep(50);
      String metrics = get("/metrics").body();
      idle =
          metrics.contains("loupe_requests_running 0\n")
              && metrics.contains("loupe_requests_waiting 0\n");
    }
    System.out.println(idle ? "idle afterwards" : "WRONG: something still runs or waits");
    return idle && outcomes.keySet().stream().noneMatch(outcome -> outcome.startsWith("WRONG"));
  }

  private static String body(int i, boolean stream) {
    int which = i % TEXTS;
    return "{\"prompt\": \"%s\", \"max_tokens\": %d, \"seed\": %d, \"stream\": %b}"
        .formatted("ROMEO: ".repeat(1 + which % 4 * 8).strip(), 5 + 5 * which, which, stream);
  }

  private String outcome(int i) {
    try {
      return switch (i % 10) {
        case 0, 1, 2 -> good(i, false);
        case 3, 4 -> good(i, true);
        case 5 -> refused("malformed", "{\"prompt\": [1, {", 400);
        case 6 -> refused("huge", "{\"user\": \"" + "x".repeat(1 << 20) + "\"}", 413);
        case 7 -> leaves(i, 200, 0); // amid a stream
        case 8 -> leaves(i, 1000, 20); // after reading slowly
        default -> halfOpen();
      };
    } catch (IOException e) {
      return "WRONG: " + e;
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private String good(int i, boolean stream) throws IOException, InterruptedException {
    HttpResponse<String> answer = ask(body(i, stream));
    while (answer.statusCode() == 429) {
      Thread.sleep(20);
      answer = ask(body(i, stream));
    }
    boolean right = text(answer).equals(expected.get(i % TEXTS));
    return right ? "good, right" : "WRONG: " + answer.statusCode() + " " + answer.body();
  }

  private String refused(String what, String body, int status)
      throws IOException, InterruptedException {
    HttpResponse<String> answer = ask(body);
    boolean right = answer.statusCode() == status || answer.statusCode() == 429;
    return right ? what + ", refused" : "WRONG: %s, %d".formatted(what, answer.statusCode());
  }

  /** Reads some bytes of a long stream, with pauses, and goes away; every other time by a reset. */
  private String leaves(int i, int bytes, int pause) throws IOException, InterruptedException {
    String body = "{\"max_tokens\": 250, \"n\": 4, \"seed\": %d, \"stream\": true}".formatted(i);
    try (Socket socket = new Socket(server.getHost(), server.getPort())) {
      socket.setSoTimeout(30_000);
      String head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ";
      socket.getOutputStream().write((head + body.length() + "\r\n\r\n" + body).getBytes(UTF_8));
      InputStream in = socket.getInputStream();
      for (int read = 0; read < bytes && in.readNBytes(100).length > 0; read += 100) {
        Thread.sleep(pause);
      }
      if (i % 20 < 10) {
        socket.setSoLinger(true, 0);
      }
    }
    return "left amid a stream";
  }

  private String halfOpen() throws IOException, InterruptedException {
    try (Socket socket = new Socket(server.getHost(), server.getPort())) {
      socket.getOutputStream().write("POST /v1/completions HTTP/1.1\r\nContent-Le".getBytes(UTF_8));
      Thread.sleep(100);
    }
    return "half a request";
  }

  private HttpResponse<String> ask(String body) throws IOException, InterruptedException {
    return client.send(
        HttpRequest.newBuilder(server.resolve("/v1/completions"))
            .POST(BodyPublishers.ofString(body))
            .build(),
        BodyHandlers.ofString());
  }

  private HttpResponse<String> get(String path) throws IOException, InterruptedException {
    return client.send(
        HttpRequest.newBuilder(server.resolve(path)).build(), BodyHandlers.ofString());
  }

  /** The text of an answer, or of all events of a stream, as JSON writes it. */
  private static String text(HttpResponse<String> answer) {
    StringBuilder text = new StringBuilder();
    Matcher piece = TEXT.matcher(answer.body());
    while (piece.find()) {
      text.append(piece.group(1));
    }
    return text.toString();
  }
}
