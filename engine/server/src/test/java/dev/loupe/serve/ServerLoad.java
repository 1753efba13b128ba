package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Good and bad clients of a running server, many at once: every good one must get what it got when
 * it was alone, and afterwards nothing may run or wait. It needs nothing but the JDK: {@code java
 * ServerLoad.java http://127.0.0.1:8080 [REQUESTS]}, or {@code MINUTESm [MB]} for a soak, with
 * attackers beside the others: steady downloads, downloads that nobody reads, idle connections,
 * long prompts. Every ten seconds a soak prints what the server takes, which is wrong where it is
 * more than so many MB. Exits with 1 if something is wrong.
 */
final class ServerLoad {
  private static final Pattern TEXT = Pattern.compile("\"text\":\"((?:[^\"\\\\]|\\\\.)*)\"");
  private static final int TEXTS = 12;
  private static final int CLIENTS = 12;

  private final URI server;
  private final HttpClient client = HttpClient.newHttpClient();
  private final List<String> expected = new ArrayList<>();
  private final Map<String, Integer> outcomes = new ConcurrentSkipListMap<>();

  private long mostMegabytes = Long.MAX_VALUE;
  private long peakMegabytes;

  private ServerLoad(URI server) {
    this.server = server;
  }

  public static void main(String[] args) throws Exception {
    String amount = args.length > 1 ? args[1] : "5000";
    ServerLoad load = new ServerLoad(URI.create(args[0]));
    load.learn();
    if (amount.endsWith("m")) {
      load.mostMegabytes = args.length > 2 ? Long.parseLong(args[2]) : Long.MAX_VALUE;
      load.soak(Double.parseDouble(amount.substring(0, amount.length() - 1)));
    } else {
      int requests = Integer.parseInt(amount);
      AtomicInteger started = new AtomicInteger();
      load.clients(() -> started.get() < requests, started);
    }
    System.exit(load.isRight() ? 0 : 1);
  }

  private void learn() throws IOException, InterruptedException {
    for (int i = 0; i < TEXTS; i++) {
      expected.add(text(ask(body(i, false))));
    }
  }

  /** Clients of all kinds, one after the other on each of some threads. */
  private void clients(BooleanSupplier goOn, AtomicInteger started) throws Exception {
    long start = System.nanoTime();
    List<Future<?>> all = new ArrayList<>();
    try (ExecutorService threads = Executors.newFixedThreadPool(CLIENTS)) {
      for (int i = 0; i < CLIENTS; i++) {
        all.add(
            threads.submit(
                () -> {
                  while (goOn.getAsBoolean()) {
                    count(outcome(started.getAndIncrement()));
                  }
                }));
      }
      for (Future<?> each : all) {
        each.get();
      }
    }
    System.out.printf("%d requests in %.1f s%n", started.get(), (System.nanoTime() - start) / 1e9);
  }

  private void count(String outcome) {
    if (outcomes.merge(outcome, 1, Integer::sum) == 1 && outcome.startsWith("WRONG")) {
      System.out.println(outcome);
    }
  }

  private boolean isRight() throws IOException, InterruptedException {
    outcomes.forEach((outcome, count) -> System.out.printf("%6d %s%n", count, outcome));
    boolean idle = false;
    for (int i = 0; i < 100 && !idle; i++) {
      Thread.sleep(50);
      idle =
          metric("loupe_requests_running").equals("0")
              && metric("loupe_requests_waiting").equals("0");
    }
    System.out.println(idle ? "idle afterwards" : "WRONG: something still runs or waits");
    return idle && outcomes.keySet().stream().noneMatch(outcome -> outcome.startsWith("WRONG"));
  }

  private static String body(int i, boolean stream) {
    int which = i % TEXTS;
    String prompt = '"' + "ROMEO: ".repeat(1 + which % 4 * 8).strip() + '"';
    String prompts = which % 3 == 0 ? "[%s, %s]".formatted(prompt, prompt) : prompt;
    return "{\"prompt\": %s, \"max_tokens\": %d, \"seed\": %d, \"stream\": %b}"
        .formatted(prompts, 5 + 5 * which, which, stream);
  }

  private String outcome(int i) {
    try {
      return switch (i % 12) {
        case 0, 1, 2 -> good(i, false);
        case 3, 4 -> good(i, true);
        case 5 -> refused("malformed", "{\"prompt\": [1, {", 400);
        case 6 -> refused("huge", "{\"user\": \"" + "x".repeat(1 << 20) + "\"}", 413);
        case 7 -> leaves(i, 200, 0); // amid a stream
        case 8 -> leaves(i, 1000, 20); // after reading slowly
        case 9 -> refused("too long", "{\"prompt\": \"" + "a b ".repeat(250_000) + "\"}", 400);
        case 10 -> refused("not known", "{\"prompt\": \"a\", \"max_token\": 5}", 400);
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
    try (Socket socket = socket()) {
      send(socket, "POST /v1/completions", body);
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
    try (Socket socket = socket()) {
      socket.getOutputStream().write("POST /v1/completions HTTP/1.1\r\nContent-Le".getBytes(UTF_8));
      Thread.sleep(100);
    }
    return "half a request";
  }

  Socket socket() throws IOException {
    Socket socket = new Socket();
    socket.setSoTimeout(120_000);
    socket.setReceiveBufferSize(64 << 10);
    socket.connect(new InetSocketAddress(server.getHost(), server.getPort()));
    return socket;
  }

  static void send(Socket socket, String request, String body) throws IOException {
    String head = request + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: ";
    socket.getOutputStream().write((head + body.length() + "\r\n\r\n" + body).getBytes(UTF_8));
  }

  private void soak(double minutes) throws Exception {
    long end = System.nanoTime() + (long) (minutes * 60e9);
    BooleanSupplier goOn = () -> System.nanoTime() < end;
    String file = "/api/runs/%s/export?as=csv".formatted(run());
    long whole =
        client
            .send(HttpRequest.newBuilder(server.resolve(file)).build(), BodyHandlers.ofByteArray())
            .body()
            .length;
    SoakAttacks soaking = new SoakAttacks(this);
    List<SoakAttacks.Attack> attacks =
        List.of(
            () -> soaking.steady(file, whole),
            () -> soaking.unread(file),
            soaking::amidIdle,
            soaking::longPrompts);
    try (ExecutorService threads = Executors.newCachedThreadPool()) {
      List<Future<?>> all = new ArrayList<>();
      for (SoakAttacks.Attack attack : attacks) {
        all.add(
            threads.submit(
                () -> {
                  while (goOn.getAsBoolean()) {
                    count(outcome(attack));
                  }
                }));
      }
      all.add(threads.submit(() -> report(goOn)));
      clients(goOn, new AtomicInteger());
      for (Future<?> each : all) {
        each.get();
      }
    }
    System.out.printf("most memory: %d MB%n", peakMegabytes);
    System.out.printf(
        "slowest client amid %d idle ones: %d ms%n", SoakAttacks.IDLE, soaking.slowest.get());
  }

  private static String outcome(SoakAttacks.Attack attack) {
    try {
      return attack.once();
    } catch (IOException e) {
      return "WRONG: " + e;
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Keeps a run whose maps are a large file. */
  private String run() throws IOException, InterruptedException {
    int[] ids = new int[256];
    Arrays.setAll(ids, i -> i % 100);
    String said = post("/api/runs", "{\"ids\": %s}".formatted(Arrays.toString(ids))).body();
    Matcher id = Pattern.compile("\"id\":\"([0-9a-f]+)\"").matcher(said);
    if (!id.find()) {
      throw new IOException("no run: " + said);
    }
    return id.group(1);
  }

  private void report(BooleanSupplier goOn) {
    long start = System.nanoTime();
    System.out.println("   s   MB  threads  files  running  waiting");
    while (goOn.getAsBoolean()) {
      try {
        long megabytes = (long) (Double.parseDouble(metric("loupe_resident_bytes")) / 1e6);
        peakMegabytes = Math.max(peakMegabytes, megabytes);
        if (megabytes > mostMegabytes) {
          count("WRONG: %d MB, more than %d".formatted(megabytes, mostMegabytes));
        }
        System.out.printf(
            "%4d %4d %8s %6s %8s %8s%n",
            (System.nanoTime() - start) / 1_000_000_000,
            megabytes,
            metric("loupe_threads"),
            metric("loupe_open_files"),
            metric("loupe_requests_running"),
            metric("loupe_requests_waiting"));
        Thread.sleep(10_000);
      } catch (IOException e) {
        count("WRONG: no metrics, " + e);
      } catch (InterruptedException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  private HttpResponse<String> ask(String body) throws IOException, InterruptedException {
    return post("/v1/completions", body);
  }

  private HttpResponse<String> post(String path, String body)
      throws IOException, InterruptedException {
    return client.send(
        HttpRequest.newBuilder(server.resolve(path)).POST(BodyPublishers.ofString(body)).build(),
        BodyHandlers.ofString());
  }

  private String metric(String name) throws IOException, InterruptedException {
    HttpRequest request = HttpRequest.newBuilder(server.resolve("/metrics")).build();
    return client
        .send(request, BodyHandlers.ofString())
        .body()
        .lines()
        .filter(line -> line.startsWith(name + " "))
        .map(line -> line.substring(name.length() + 1))
        .findFirst()
        .orElse("0");
  }

  /** The texts of an answer, or of all events of a stream, as JSON writes them. */
  private static String text(HttpResponse<String> answer) {
    StringBuilder text = new StringBuilder();
    Matcher piece = TEXT.matcher(answer.body());
    while (piece.find()) {
      text.append(piece.group(1));
    }
    return text.toString();
  }
}
