package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonParser;
import dev.loupe.serve.http.Exchange;
import dev.loupe.serve.http.Places;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.ByteBufAllocatorMetricProvider;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.http.HttpRequest.BodyPublishers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Clients that are slow, silent or many: others are served, and memory has a bound. */
@Timeout(200)
class AttackTest {
  private static ServerOptions options(int queue, int slots) {
    return new ServerOptions(
        "127.0.0.1", 0, Optional.empty(), queue, slots, Duration.ofSeconds(60), Served.MODEL);
  }

  /** Keeps a run of so many tokens and returns its name. */
  private static String run(Served served, int tokens) {
    JsonArray ids = new JsonArray();
    for (int i = 0; i < tokens; i++) {
      ids.add(7 * i % 1000);
    }
    String events =
        served
            .send(
                served
                    .to("/api/runs")
                    .POST(BodyPublishers.ofString("{\"ids\": %s}".formatted(ids))))
            .body();
    String last = events.strip().lines().reduce((_, line) -> line).orElseThrow();
    return JsonParser.parseString(last.substring(6)).getAsJsonObject().get("id").getAsString();
  }

  /** A client with little room that asks for a file of 22 MB. */
  private static Socket downloading(Served served, String id) throws IOException {
    Socket socket = new Socket();
    socket.setReceiveBufferSize(64 << 10);
    socket.setSoTimeout(60_000);
    socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), served.server().port()));
    socket
        .getOutputStream()
        .write(
            "GET /api/runs/%s/export?as=csv HTTP/1.1\r\nHost: localhost\r\n\r\n"
                .formatted(id)
                .getBytes(UTF_8));
    return socket;
  }

  private static long contentLength(InputStream in) throws IOException {
    StringBuilder head = new StringBuilder();
    while (!head.toString().endsWith("\r\n\r\n")) {
      int next = in.read();
      assertTrue(next >= 0, head.toString());
      head.append((char) next);
    }
    assertTrue(head.toString().startsWith("HTTP/1.1 200"), head.toString());
    return head.toString()
        .lines()
        .filter(line -> line.startsWith("content-length: "))
        .mapToLong(line -> Long.parseLong(line.substring(16)))
        .findFirst()
        .orElseThrow();
  }

  @Test
  void aSteadyDownloadTakesAsLongAsItTakes() throws Exception {
    try (Served served = Served.start(options(4, 8), Duration.ofSeconds(2))) {
      String id = run(served, 256);
      try (Socket socket = downloading(served, id)) {
        InputStream in = new BufferedInputStream(socket.getInputStream(), 64 << 10);
        long length = contentLength(in);
        assertTrue(length > 20_000_000, length + " bytes");
        byte[] piece = new byte[64 << 10];
        long left = length;
        while (left > 0) {
          int read = in.readNBytes(piece, 0, (int) Math.min(left, piece.length));
          assertTrue(read > 0, left + " of " + length + " bytes are missing");
          left -= read;
          Thread.sleep(15); // five seconds in all
        }
      }
      served.awaitIdle();
    }
  }

  private static List<Path> files() throws IOException {
    try (Stream<Path> files = Files.list(Path.of(System.getProperty("java.io.tmpdir")))) {
      return files.filter(f -> f.getFileName().toString().matches("loupe-\\d+\\.csv")).toList();
    }
  }

  @Tag("sweep")
  @Test
  void aDownloadThatNobodyReadsEnds() throws Exception {
    try (Served served = Served.start(options(4, 8), Duration.ofSeconds(1))) {
      String id = run(served, 256);
      List<Path> before = files();
      try (Socket _ = downloading(served, id)) {
        Served.await("it is sent", () -> served.server().exchanges() == 1);
        served.awaitIdle();
        Served.await("closed", () -> served.server().connections() <= 1);
        List<Path> after = new ArrayList<>(files());
        after.removeAll(before);
        assertEquals(List.of(), after);
      }
      try (Socket socket = downloading(served, id)) { // who goes away amid it leaves nothing
        socket.getInputStream().readNBytes(100_000);
      }
      served.awaitIdle();
      List<Path> after = new ArrayList<>(files());
      after.removeAll(before);
      assertEquals(List.of(), after);
    }
  }

  /** Bytes on the heap, and in the network's buffers beside it. */
  private static long memory() {
    System.gc();
    Runtime runtime = Runtime.getRuntime();
    ByteBufAllocatorMetricProvider buffers =
        (ByteBufAllocatorMetricProvider) ByteBufAllocator.DEFAULT;
    return runtime.totalMemory()
        - runtime.freeMemory()
        + buffers.metric().usedDirectMemory()
        + buffers.metric().usedHeapMemory();
  }

  @Test
  void clientsThatDoNotReadTakeNoMemory() throws Exception {
    try (Served served = Served.start(options(16, 2))) {
      String id = run(served, 256);
      List<Socket> sockets = new ArrayList<>();
      try {
        long before = memory();
        for (int i = 0; i < 8; i++) {
          sockets.add(downloading(served, id));
        }
        for (Socket socket : sockets) { // each has begun
          assertEquals('H', socket.getInputStream().read());
        }
        long after = memory();
        assertTrue(after < before + (40 << 20), "%d bytes, then %d".formatted(before, after));
        assertEquals(8, served.server().exchanges());
        served.complete("{'max_tokens': 3}").has(200);
      } finally {
        for (Socket socket : sockets) {
          socket.close();
        }
      }
      served.awaitIdle();
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"export?as=csv&l=0&h=0", "stats", "lens?q=3", "rows?q=3"})
  void heavyRequestsQueueLikeRuns(String part) throws Exception {
    try (Served served = Served.start(options(0, 1))) {
      String path = "/api/runs/%s/%s".formatted(run(served, 7), part);
      try (Places.Place place = served.server().places().enter()) {
        place.await(System.nanoTime() + 60_000_000_000L);
        served.get(path).refused(429, "try again");
      }
      assertEquals(200, served.send(served.to(path)).statusCode());
    }
  }

  private static List<Socket> idle(Served served, int count, String from) throws IOException {
    List<Socket> sockets = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      Socket socket = new Socket();
      socket.bind(new InetSocketAddress(from, 0));
      socket.connect(
          new InetSocketAddress(InetAddress.getLoopbackAddress(), served.server().port()));
      sockets.add(socket);
    }
    return sockets;
  }

  private static void closeAll(List<Socket> sockets) throws IOException {
    for (Socket socket : sockets) {
      socket.close();
    }
  }

  private static void asks(Socket socket) throws IOException {
    socket
        .getOutputStream()
        .write("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".getBytes(UTF_8));
    StringBuilder said = new StringBuilder();
    while (!said.toString().endsWith("}")) {
      int next = socket.getInputStream().read();
      assertTrue(next >= 0, "closed after: " + said);
      said.append((char) next);
    }
    assertTrue(said.toString().startsWith("HTTP/1.1 200"), said.toString());
  }

  @Test
  void idleConnectionsMakeRoom() throws Exception {
    try (Served served = Served.start(options(16, 2))) {
      Socket kept = served.socket("");
      asks(kept);
      Socket runs = served.asking("{'max_tokens': 255, 'n': 16, 'seed': 1, 'stream': true}");
      assertEquals(100, runs.getInputStream().readNBytes(100).length);
      List<Socket> idle = idle(served, 300, "127.0.0.1");
      List<Socket> others = idle(served, 300, "127.0.0.2");
      for (int i = 0; i < 5; i++) {
        try (Socket good = served.socket("")) {
          asks(good);
        }
      }
      served.complete("{'max_tokens': 3}").has(200);
      asks(kept); // it was used, so that others went before it
      Served.await("256 are open", () -> served.server().connections() <= 256);
      assertEquals(5000, runs.getInputStream().readNBytes(5000).length, "what runs is let run");
      closeAll(idle);
      closeAll(others);
      kept.close();
      runs.close();
    }
  }

  @Test
  void aRequestThatIsOnItsWayGoesBeforeSilence() throws Exception {
    try (Served served = Served.start(options(16, 2))) {
      String body = "{\"max_tokens\": 3, \"user\": \"%s\"}".formatted("x".repeat(1000));
      Socket sends =
          served.socket(
              "POST /v1/completions HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s"
                  .formatted(body.length(), body.substring(0, 500)));
      served.get("/healthz").has(200); // what was sent before has arrived
      List<Socket> idle = idle(served, 300, "127.0.0.1");
      try (Socket last = served.socket("")) {
        asks(last); // all before it were let in
      }
      Served.await("who makes way is closed", () -> served.server().connections() <= 128);
      sends.getOutputStream().write(body.substring(500).getBytes(UTF_8));
      assertEquals("HTTP/1.1 200", new String(sends.getInputStream().readNBytes(12), UTF_8));
      closeAll(idle);
      sends.close();
    }
  }

  /** Those whose long texts wait for their turn leave the turns to run to others. */
  @Test
  void longTextsAreTokenizedByHalfOfTheProcessors() throws Exception {
    try (Served served = Served.start(options(16, 1))) {
      Places places = served.server().places();
      List<Places.Text> taken = new ArrayList<>();
      long soon = System.nanoTime() + 60_000_000_000L;
      for (int i = 0; i < Math.max(1, Runtime.getRuntime().availableProcessors() / 2); i++) {
        taken.add(places.text(1 << 20, soon));
      }
      String prompt = "'prompt': '%s', 'truncate_prompt_tokens': 5".formatted("a b ".repeat(5000));
      try (Socket waits = served.asking("{%s, 'max_tokens': 2}".formatted(prompt))) {
        Served.await("it waits", () -> places.waiting() == 1);
        served.complete("{'max_tokens': 3}").has(200);
        served.post("/tokenize", "{'prompt': 'a b'}").has(200);
        assertEquals(1, places.waiting());
        taken.forEach(Places.Text::close);
        assertEquals("HTTP/1.1 200", new String(waits.getInputStream().readNBytes(12), UTF_8));
      }
      served.awaitIdle();
    }
  }

  @Test
  void oneAddressHasNotAllConnections() throws Exception {
    try (Served served = Served.start(options(16, 2))) {
      List<Socket> first = idle(served, 20, "127.0.0.3");
      List<Socket> many = idle(served, 400, "127.0.0.2");
      Served.await("all are in or out", () -> served.server().connections() <= 148);
      for (Socket socket : first) {
        asks(socket); // none of these made way
      }
      closeAll(first);
      closeAll(many);
    }
  }

  @Test
  void largeAnswersAreWhole() throws Exception {
    try (Served served = Served.start(options(16, 2))) {
      String large = "{'max_tokens': 60, 'n': 4, 'logprobs': 5, 'seed': 1}";
      Served.Answer answer = served.complete(large).has(200);
      assertTrue(answer.response().body().length() > 2 * Exchange.PIECE, "in several pieces");
      try (Socket _ = served.asking(large)) { // and leaves
        served.awaitIdle();
      }
      assertEquals(
          answer.json().get("choices"), served.complete(large).has(200).json().get("choices"));
      served.awaitIdle();
    }
  }
}
