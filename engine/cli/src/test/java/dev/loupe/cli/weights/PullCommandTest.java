package dev.loupe.cli.weights;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import dev.loupe.TinyModel;
import dev.loupe.cli.Child;
import dev.loupe.cli.Main;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** {@code loupe weights pull} from a small hub on this machine, and {@code -m NAME} after it. */
@Timeout(200)
class PullCommandTest {
  private static final String NAME = "somebody/tiny-gpt2";
  private static final String WEIGHTS = "model.safetensors";
  private static final List<String> FILES = List.of("config.json", WEIGHTS, "tokenizer.json");

  @TempDir Path folder;
  private TinyModel model;
  private HttpServer hub;
  private Path made;
  private volatile int stallAfter = Integer.MAX_VALUE;
  private final CountDownLatch stalled = new CountDownLatch(1);
  private final CountDownLatch ended = new CountDownLatch(1);
  private final Queue<String> ranges = new ConcurrentLinkedQueue<>();

  @BeforeEach
  void start() throws IOException {
    made = folder.resolve("made");
    model = TinyModel.in(folder.resolve("model"));
    hub = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    hub.setExecutor(Executors.newVirtualThreadPerTaskExecutor());
    hub.createContext("/api/models/" + NAME + "/revision/main", this::list);
    hub.createContext("/" + NAME + "/resolve/0123456789/", this::file);
    hub.start();
  }

  @AfterEach
  void stop() {
    ended.countDown();
    hub.stop(0);
  }

  private String address() {
    return "http://localhost:" + hub.getAddress().getPort();
  }

  private void list(HttpExchange exchange) throws IOException {
    try (exchange) {
      StringBuilder json = new StringBuilder("{\"sha\": \"0123456789\", \"siblings\": [");
      for (String file : FILES) {
        json.append(file.equals(FILES.getFirst()) ? "" : ", ");
        json.append("{\"rfilename\": \"").append(file).append("\"}");
      }
      byte[] bytes = json.append("]}").toString().getBytes(UTF_8);
      exchange.sendResponseHeaders(200, bytes.length);
      exchange.getResponseBody().write(bytes);
    }
  }

  private void file(HttpExchange exchange) throws IOException {
    try (exchange) {
      String path = exchange.getRequestURI().getPath();
      String name = path.substring(path.lastIndexOf('/') + 1);
      byte[] all = Files.readAllBytes(model.folder().resolve(name));
      exchange.getResponseHeaders().set("ETag", '"' + sha256(all) + '"');
      if (exchange.getRequestMethod().equals("HEAD")) {
        exchange.getResponseHeaders().set("Content-Length", Integer.toString(all.length));
        exchange.sendResponseHeaders(200, -1);
        return;
      }
      String range = exchange.getRequestHeaders().getFirst("Range");
      int from = 0;
      if (range != null) {
        ranges.add(name + " " + range);
        from = Integer.parseInt(range.replaceAll("[^0-9]", ""));
        exchange
            .getResponseHeaders()
            .set("Content-Range", "bytes %d-%d/%d".formatted(from, all.length - 1, all.length));
      }
      exchange.sendResponseHeaders(range == null ? 200 : 206, all.length - from);
      send(Arrays.copyOfRange(all, from, all.length), exchange.getResponseBody());
    }
  }

  private void send(byte[] bytes, OutputStream out) throws IOException {
    int first = Math.min(bytes.length, stallAfter);
    out.write(bytes, 0, first);
    out.flush();
    if (first < bytes.length) {
      stalled.countDown();
      try {
        ended.await();
      } catch (InterruptedException e) {
        throw new IOException(e);
      }
    }
  }

  private static String sha256(byte[] bytes) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    } catch (java.security.NoSuchAlgorithmException e) {
      throw new AssertionError(e);
    }
  }

  private void assertWhole(Path pulled) throws IOException {
    assertEquals(FILES, Ran.names(pulled));
    for (String file : FILES) {
      assertArrayEquals(
          Files.readAllBytes(model.folder().resolve(file)),
          Files.readAllBytes(pulled.resolve(file)));
    }
  }

  @Test
  void pullsIntoAFolder() throws IOException {
    Ran ran = Ran.loupe("weights", "pull", NAME, made, "--hub", address()).well();
    assertEquals("", ran.out());
    assertTrue(ran.err().startsWith("[pulled " + NAME + ": 3 files, "), ran.err());
    assertTrue(ran.err().contains(made.toString()), ran.err());
    assertWhole(made);
    Ran.loupe("generate", "-m", made, "-n", 2, "a").well();
    assertEquals("", Ran.loupe("weights", "pull", NAME, made, "--hub", address(), "-q").err());
  }

  @Test
  void showsABarOnATerminal() throws Exception {
    stallAfter = 400_000; // of 0.7 MB
    Thread later =
        Thread.ofVirtual()
            .start(
                () -> {
                  try {
                    if (stalled.await(100, TimeUnit.SECONDS)) {
                      Thread.sleep(1000);
                    }
                  } catch (InterruptedException e) {
                    throw new AssertionError(e);
                  } finally {
                    stallAfter = Integer.MAX_VALUE;
                    ended.countDown(); // the line breaks, and the pull asks again
                  }
                });
    Ran ran = Ran.onTerminal("weights", "pull", NAME, made, "--hub", address()).well();
    later.join();
    assertTrue(ran.err().contains("pulling " + NAME + " [#####"), ran.err());
    assertWhole(made);
  }

  @Test
  void saysWhatCannotBeHad() throws IOException {
    Ran.loupe("weights", "pull", "somebody/else", made, "--hub", address())
        .refused(ExitCode.BAD_INPUT, "somebody/else", "404", "check the name");
    String here = address();
    hub.stop(0);
    Ran.loupe("weights", "pull", NAME, made, "--hub", here)
        .refused(ExitCode.FAILED, "localhost", "takes no connection");
    assertFalse(Files.exists(made));
  }

  /** In processes of their own: the environment says where the cache is. */
  @Test
  void aModelIsFoundByItsName() throws Exception {
    Child child = new Child(folder);
    Path own = folder.resolve("cache");
    Path theirs = folder.resolve("theirs");
    Map<String, String> environment =
        Map.of(
            "LOUPE_CACHE", own.toString(),
            "HF_HUB_CACHE", theirs.toString(),
            "HF_ENDPOINT", address());
    child
        .run(Child.java(Main.class, List.of(), "weights", "inspect", NAME), environment)
        .refused(ExitCode.BAD_INPUT, NAME, "run loupe weights pull " + NAME);
    Path snapshot = theirs.resolve("models--somebody--tiny-gpt2/snapshots/0123456789");
    Files.createDirectories(snapshot.getParent());
    Files.createSymbolicLink(snapshot, model.folder());
    Path refs = Files.createDirectories(snapshot.resolve("../../refs").normalize());
    Files.writeString(refs.resolve("main"), "0123456789");
    String inspected =
        child
            .run(Child.java(Main.class, List.of(), "weights", "inspect", NAME), environment)
            .well()
            .out();
    assertTrue(inspected.contains(snapshot.toString()), inspected);

    child.run(Child.java(Main.class, List.of(), "weights", "pull", NAME), environment).well();
    assertWhole(own.resolve("models").resolve(NAME));
    child
        .run(Child.java(Main.class, List.of(), "generate", "-m", NAME, "-n", 2, "a"), environment)
        .well();
  }

  private Process begin(Child child) throws Exception {
    stallAfter = 100_000;
    Process process =
        child.start(
            Child.java(Main.class, List.of(), "weights", "pull", NAME, made, "--hub", address()));
    assertTrue(stalled.await(100, TimeUnit.SECONDS));
    Path parts = made.resolve(".loupe-pull");
    long start = System.nanoTime();
    while (!Files.isDirectory(parts) || bytes(parts) < 100_000) {
      if (System.nanoTime() - start > 60e9) {
        throw new TimeoutException(child.said());
      }
      Thread.sleep(20);
    }
    return process;
  }

  /** Of the weights' part. */
  private static long bytes(Path parts) throws IOException {
    for (String name : Ran.names(parts)) {
      if (name.startsWith(WEIGHTS)) {
        return Files.size(parts.resolve(name));
      }
    }
    return 0;
  }

  private void goOn() throws IOException {
    assertEquals(List.of(".loupe-pull"), Ran.names(made), "nothing that looks like a model");
    stallAfter = Integer.MAX_VALUE;
    Ran.loupe("weights", "pull", NAME, made, "--hub", address()).well();
    assertWhole(made);
    assertTrue(ranges.contains(WEIGHTS + " bytes=100000-"), ranges.toString());
  }

  @ParameterizedTest
  @ValueSource(strings = {"INT", "TERM"})
  void anInterruptedPullGoesOn(String signal) throws Exception {
    Child.assumeIsHeard(signal);
    Child child = new Child(folder);
    Process process = begin(child);
    Child.signal(process, signal);
    assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    assertEquals(Child.exitCode(signal), process.exitValue(), child.said());
    assertEquals(
        "loupe: interrupted; the same command goes on where this one ended\n", child.said());
    goOn();
  }

  @Test
  void aKilledPullGoesOn() throws Exception {
    Child child = new Child(folder);
    Process process = begin(child);
    Ran.loupe("weights", "pull", NAME, made, "--hub", address())
        .refused(ExitCode.FAILED, "another loupe is pulling into", made);
    process.destroyForcibly();
    assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    goOn();
  }
}
