package dev.loupe.serve;

import static dev.loupe.serve.BusyServer.HALF;
import static dev.loupe.serve.BusyServer.LONG;
import static dev.loupe.serve.BusyServer.WAITS;
import static dev.loupe.serve.BusyServer.awaitRunning;
import static dev.loupe.serve.BusyServer.options;
import static dev.loupe.serve.BusyServer.written;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.sampling.Sampling;
import dev.loupe.serve.http.Places;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.http.HttpRequest.BodyPublishers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Many clients, and those that behave badly: everyone gets what is theirs, and nothing stays. */
@Timeout(200)
class LoadTest {
  @Test
  void threeHundredRequestsGetWhatALoneRunGives() throws Exception {
    try (Served served = Served.start(options(16, 8, 60));
        ExecutorService clients = Executors.newFixedThreadPool(8)) {
      List<String> expected = new ArrayList<>();
      for (int seed = 0; seed < 30; seed++) {
        GenerateRequest request =
            GenerateRequest.text("ROMEO:").tokens(8).sampling(Sampling.seeded(seed));
        expected.add(served.loupe().run(request).getFirst().text());
      }
      List<Callable<String>> tasks = new ArrayList<>();
      for (int i = 0; i < 300; i++) {
        String body = "{'prompt': 'ROMEO:', 'max_tokens': 8, 'seed': %d".formatted(i % 30);
        boolean streams = i % 2 == 1;
        tasks.add(
            () ->
                streams
                    ? Served.joined(served.stream(body + ", 'stream': true}"), 0)
                    : served.complete(body + "}").has(200).text(0));
      }
      List<Future<String>> answers = clients.invokeAll(tasks);
      for (int i = 0; i < 300; i++) {
        assertEquals(expected.get(i % 30), answers.get(i).get(), "request " + i);
      }
      served.awaitIdle();
      assertEquals(Integer.toString(300 * 8), served.metric("loupe_generated_tokens_total"));
      assertEquals("300", served.metric("loupe_run_seconds_count"));
    }
  }

  @Test
  void aClientThatGoesAwayFreesItsPlaceAtOnce() throws Exception {
    try (Served served = Served.start(options(4, 8, 60))) {
      served
          .complete("{'max_tokens': 20, 'n': 64}")
          .has(200); // compiled, a pass takes its usual time
      for (String stream : List.of("", ", 'stream': true")) {
        Socket socket = served.asking(LONG.formatted(stream));
        awaitRunning(served, 0);
        if (!stream.isEmpty()) {
          assertEquals(200, socket.getInputStream().readNBytes(200).length, "it writes");
        }
        long before = written(served);
        socket.close();
        served.awaitIdle();
        long more = written(served) - before;
        assertTrue(more < HALF, more + " tokens");
      }
      Socket reset = served.asking(LONG.formatted(""));
      awaitRunning(served, 0);
      reset.setSoLinger(true, 0); // a reset, not an end
      long before = written(served);
      reset.close();
      served.awaitIdle();
      long more = written(served) - before;
      assertTrue(more < HALF, more + " tokens");
      assertEquals("3", served.metric("loupe_requests_cancelled_total"));
      served.complete(WAITS).has(200);
    }
  }

  @Test
  void theQueueIsInOrderAndBoundedAndCanBeLeft() throws Exception {
    try (Served served = Served.start(options(3, 1, 60))) {
      Socket runs = served.asking(LONG.formatted(""));
      awaitRunning(served, 0);
      List<Socket> waiting = new ArrayList<>();
      for (String body : List.of(LONG.formatted(", 'stream': true"), WAITS, WAITS)) {
        waiting.add(served.asking(body));
        awaitRunning(served, waiting.size());
      }
      Served.Answer full = served.complete(WAITS);
      assertEquals("queue_full", full.refused(429, "(3)").get("code").getAsString());
      assertEquals("1", full.response().headers().firstValue("retry-after").orElse(""));
      assertEquals("3", served.metric("loupe_requests_waiting"));
      assertEquals("1", served.metric("loupe_requests_running"));
      waiting.remove(1).close();
      awaitRunning(served, 2);
      runs.close();
      InputStream last = waiting.get(1).getInputStream();
      assertEquals(500, waiting.get(0).getInputStream().readNBytes(500).length);
      assertEquals(0, last.available(), "in order of arrival");
      waiting.get(0).close();
      assertEquals("HTTP/1.1 200", new String(last.readNBytes(12), UTF_8));
      served.awaitIdle();
      waiting.get(1).close();
    }
  }

  @Test
  void timeIsUp() throws Exception {
    int seconds = 1; // and more where a machine is too busy to write a token in that time
    while (!timeIsUp(seconds)) {
      seconds *= 4;
      assertTrue(seconds <= 64, "not a token in 16 seconds");
    }
  }

  /** False if not a token was written in so many seconds. */
  private static boolean timeIsUp(int seconds) throws Exception {
    try (Served served = Served.start(options(4, 8, seconds))) {
      Served.Answer cut = served.complete("{'max_tokens': 255, 'n': 128, 'seed': 1}");
      if (cut.status() == 503) {
        return false;
      }
      JsonObject usage = cut.has(200).json().getAsJsonObject("usage");
      int written = usage.get("completion_tokens").getAsInt();
      assertTrue(written > 0 && written < 128 * 255, written + " tokens");
      assertEquals("length", cut.choice(0).get("finish_reason").getAsString());
      String whole =
          served
              .loupe()
              .run(GenerateRequest.text("").tokens(255).samples(1).sampling(Sampling.seeded(1)))
              .getFirst()
              .text();
      assertTrue(whole.startsWith(cut.text(0)), "what there is is right");
      String prompt = "'To be or not to be, that is the question',".repeat(32);
      String two = "{'prompt': [%s 'x'], 'max_tokens': 200, 'n': 3, 'seed': 1}".formatted(prompt);
      assertEquals("timeout", served.complete(two).refused(503, "time").get("code").getAsString());
      String streamed =
          served
              .send(
                  served
                      .to("/v1/completions")
                      .POST(
                          BodyPublishers.ofString(
                              two.replace("'n'", "'stream': true, 'n'").replace('\'', '"'))))
              .body();
      String[] events = streamed.split("\n\n", -1);
      JsonObject last =
          JsonParser.parseString(events[events.length - 2].substring(6)).getAsJsonObject();
      assertEquals("timeout", last.getAsJsonObject("error").get("code").getAsString());
      assertFalse(streamed.contains("[DONE]"), "an error ends it");
      served.awaitIdle();
      return true;
    }
  }

  @Test
  void aWaitThatTakesTooLongIsRefused() throws Exception {
    try (Served served = Served.start(options(4, 1, 1))) {
      try (Places.Place place = served.server().places().enter()) {
        place.await(System.nanoTime() + 1_000_000_000L);
        assertEquals(
            "timeout", served.complete(WAITS).refused(503, "turn").get("code").getAsString());
      }
      served.complete(WAITS).has(200);
    }
  }

  @Test
  void closingEndsWhatRunsWithWhatItHas() throws Exception {
    try (Served served = Served.start(options(4, 1, 60))) {
      Socket runs = served.asking(LONG.formatted(", 'stream': true"));
      runs.getInputStream().readNBytes(500);
      Socket waits = served.asking(WAITS);
      awaitRunning(served, 1);
      served.server().close();
      String said = new String(runs.getInputStream().readAllBytes(), UTF_8);
      assertTrue(said.contains("\"finish_reason\":\"length\""), "it ends well");
      assertTrue(said.contains("data: [DONE]"), "to the end");
      int events = said.split("data: ", -1).length;
      assertTrue(events < HALF, events + " events");
      String refused = new String(waits.getInputStream().readAllBytes(), UTF_8);
      assertTrue(refused.startsWith("HTTP/1.1 503") && refused.contains("closing"), refused);
      runs.close();
      waits.close();
    }
  }

  private static long heap() {
    System.gc();
    Runtime runtime = Runtime.getRuntime();
    return runtime.totalMemory() - runtime.freeMemory();
  }

  /** {@link ServerLoad} by a process of its own. */
  private static void load(Served served, int requests, Path said) throws Exception {
    Process process =
        new ProcessBuilder(
                ProcessHandle.current().info().command().orElseThrow(),
                "-XX:+UseSerialGC",
                "-cp",
                Path.of(
                        ServerLoad.class
                            .getProtectionDomain()
                            .getCodeSource()
                            .getLocation()
                            .toURI())
                    .toString(),
                ServerLoad.class.getName(),
                served.server().address(),
                Integer.toString(requests))
            .redirectErrorStream(true)
            .redirectOutput(said.toFile())
            .start();
    try {
      assertTrue(process.waitFor(100, TimeUnit.SECONDS), "it ends");
      assertEquals(0, process.exitValue(), Files.readString(said));
    } finally {
      process.destroy();
    }
  }

  @Tag("sweep")
  @Test
  void goodClientsAmongBadOnesOfAnotherProcess(@TempDir Path folder) throws Exception {
    try (Served served = Served.start(options(16, 8, 60))) {
      load(served, 20, folder.resolve("first"));
      long before = heap();
      load(served, 150, folder.resolve("said"));
      served.awaitIdle();
      Served.await("closed", () -> served.server().connections() == 0);
      Served.await("threads end or are few", () -> threads().size() <= 30);
      long after = heap();
      assertTrue(after < before + (8 << 20), "%d bytes, then %d".formatted(before, after));
      List<Callable<Integer>> all = new ArrayList<>();
      for (int i = 0; i < 8; i++) { // every slot is there
        all.add(() -> served.complete(WAITS).has(200).status());
      }
      try (ExecutorService clients = Executors.newFixedThreadPool(8)) {
        for (Future<Integer> status : clients.invokeAll(all)) {
          assertEquals(200, status.get());
        }
      }
    }
  }

  private static long files() throws IOException {
    Path open = Path.of("/proc/self/fd");
    if (!Files.exists(open)) {
      return 0;
    }
    try (Stream<Path> files = Files.list(open)) {
      return files.count();
    }
  }

  private static List<String> threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .map(Thread::getName)
        .filter(name -> name.startsWith("loupe-http") || name.startsWith("loupe-serve"))
        .toList();
  }

  @Test
  void nothingStays() throws Exception {
    Served.start(options(4, 8, 60)).close(); // what is loaded once
    long before = files();
    for (int i = 0; i < 5; i++) {
      try (Served served = Served.start(options(4, 8, 60))) {
        served.complete(WAITS).has(200);
        for (int k = 0; k < 10; k++) {
          Socket socket = served.asking(LONG.formatted(k % 2 == 0 ? "" : ", 'stream': true"));
          if (k % 3 == 0) {
            awaitRunning(served, 0);
          }
          socket.close();
          served.awaitIdle();
        }
        Served.await("closed", () -> served.server().connections() <= 1); // the client keeps one
      }
    }
    Served.await("threads end", () -> threads().isEmpty());
    long after = files();
    assertTrue(after <= before + 3, "%d files before, %d after".formatted(before, after));
  }
}
