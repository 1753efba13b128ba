package dev.loupe.hub;

import static dev.loupe.hub.FakeHub.cdn;
import static dev.loupe.hub.FakeHub.get;
import static dev.loupe.hub.FakeHub.head;
import static dev.loupe.hub.FakeHub.status;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.FaultyFiles;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.Progress;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Pulls from a server that may be slow, broken, or lying. */
@Timeout(200)
class PullTest {
  private static final String WEIGHTS = "model.safetensors";
  private static final List<String> FILES = List.of("config.json", WEIGHTS, "tokenizer.json");

  @TempDir Path temporary;
  private Path folder;
  private FakeHub server;
  private Optional<String> file = Optional.empty();

  @BeforeEach
  void start() throws IOException {
    server = FakeHub.withModel();
    folder = temporary.resolve("made");
  }

  @AfterEach
  void stop() {
    server.close();
  }

  private Pull.Pulled pull() throws IOException {
    return pull(Progress.NONE);
  }

  private Pull.Pulled pull(Progress progress) throws IOException {
    try (Hub hub = new Hub(server.settings())) {
      return Pull.run(hub, ModelName.of(FakeHub.NAME), file, folder, progress);
    }
  }

  private void assertWhole() throws IOException {
    assertEquals(FILES, names(folder));
    for (String file : FILES) {
      assertArrayEquals(server.bytes(file), Files.readAllBytes(folder.resolve(file)), file);
    }
  }

  /** One sentence with these words; and the folder doesn't look like a model. */
  private IOException refused(String... words) throws IOException {
    IOException e = assertThrows(IOException.class, this::pull);
    String message = String.valueOf(e.getMessage());
    for (String word : words) {
      assertTrue(message.contains(word), () -> "no <" + word + "> in: " + message);
    }
    assertTrue(message.lines().count() == 1 && message.length() < 400, message);
    assertFalse(message.contains("Exception") || message.contains(" null "), message);
    assertFalse(message.contains("hf_secret"), message);
    assertFalse(Files.exists(folder.resolve(WEIGHTS)));
    return e;
  }

  private static List<String> names(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.map(file -> file.getFileName().toString()).sorted().toList();
    }
  }

  private List<String> requests(String start) {
    return server.log().stream().filter(line -> line.startsWith(start)).toList();
  }

  private Path part() {
    return folder
        .resolve(".loupe-pull")
        .resolve("%s.%s.part".formatted(WEIGHTS, FakeHub.sha256(FakeHub.weights())));
  }

  private void left(byte[] bytes) throws IOException {
    Files.createDirectories(part().getParent());
    Files.write(part(), bytes);
  }

  @Test
  void bringsWhatIsNeededAndNothingElse() throws IOException {
    Pull.Pulled pulled = pull();
    assertWhole();
    assertEquals(List.of("config.json", "tokenizer.json", WEIGHTS), pulled.files());
    assertEquals(pulled.bytes(), pulled.fetched());
    assertTrue(pulled.bytes() > 3_000_000 && pulled.hasTokenizer());
    assertEquals(List.of(), server.log().stream().filter(line -> line.contains("pyt")).toList());
  }

  @Test
  void generationConfigComesAlong() throws IOException {
    server.put("generation_config.json", "{\"eos_token_id\": [1, 2]}");
    assertEquals(
        List.of("config.json", "generation_config.json", "tokenizer.json", WEIGHTS),
        pull().files());
    assertArrayEquals(
        server.bytes("generation_config.json"),
        Files.readAllBytes(folder.resolve("generation_config.json")));
  }

  /** Every step of writing fails in turn: no folder looks like a model, and the next pull ends. */
  @Test
  void faultsInTurn() throws IOException {
    server.put(WEIGHTS, "few weights"); // in one write
    int faults =
        FaultyFiles.inTurn(
            n -> Files.createDirectory(temporary.resolve("f" + n)),
            fresh -> {
              folder = fresh.resolve("m");
              pull();
            },
            (fresh, failure) -> {
              assertEquals(1, String.valueOf(failure.getMessage()).lines().count());
              assertFalse(Files.exists(fresh.resolve("m").resolve(WEIGHTS)));
              folder = fresh.resolve("m");
              pull();
              assertWhole();
            });
    assertTrue(faults > 8, faults + " faults");
    folder = temporary.resolve("f" + faults).resolve("m");
    assertWhole();
  }

  /** A GGUF file needs nothing beside it. */
  @Test
  void oneFileOfSeveral() throws IOException {
    server.put("q4.gguf", FakeHub.weights()).put("q8.gguf", "small").put("f16.safetensors", "x");
    assertEquals(List.of("config.json", "tokenizer.json", WEIGHTS), pull().files());
    folder = temporary.resolve("gguf");
    file = Optional.of("q4.gguf");
    Pull.Pulled pulled = pull();
    assertEquals(List.of("q4.gguf"), pulled.files());
    assertTrue(pulled.hasTokenizer());
    assertEquals(List.of("q4.gguf"), names(folder));
    assertArrayEquals(FakeHub.weights(), Files.readAllBytes(folder.resolve("q4.gguf")));
    folder = temporary.resolve("other");
    file = Optional.of("f16.safetensors");
    assertEquals(List.of("config.json", "tokenizer.json", "f16.safetensors"), pull().files());
    folder = temporary.resolve("none");
    for (String missing : List.of("q5.gguf", "onnx/model.safetensors", "../q4.gguf", "")) {
      file = Optional.of(missing);
      refused("holds no file " + missing, "there are q4.gguf, q8.gguf");
    }
    assertFalse(Files.exists(folder));
  }

  @Test
  void repositoriesWithGgufAlone() throws IOException {
    for (String name : FILES) {
      server.remove(name);
    }
    server.remove("pytorch_model.bin");
    refused("holds no weights that Loupe pulls");
    server.put("q4.gguf", FakeHub.weights());
    assertEquals(List.of("q4.gguf"), pull().files());
    folder = temporary.resolve("several");
    server.put("q8.gguf", "small").put("sub/q2.gguf", "small");
    refused("several GGUF files", "name one of them", "q4.gguf, q8.gguf");
  }

  @Test
  void adapters() throws IOException {
    for (String name : FILES) {
      server.remove(name);
    }
    server.remove("pytorch_model.bin");
    server.put("adapter_model.safetensors", FakeHub.weights());
    refused("holds no adapter_config.json");
    server.put("adapter_config.json", "{}");
    Pull.Pulled pulled = pull();
    assertEquals(List.of("adapter_config.json", "adapter_model.safetensors"), pulled.files());
    assertTrue(pulled.hasTokenizer(), "the base has one");
  }

  @Test
  void theTokenGoesToTheHubAlone() throws IOException {
    pull();
    for (String line : server.log()) {
      assertEquals(!line.contains("cdn/"), line.contains("Bearer hf_secret"), line);
    }
    assertEquals(1, requests("GET cdn/").size());
  }

  @Test
  void whatIsThereIsCheckedAndNotFetchedAgain() throws IOException {
    pull();
    server.clearLog();
    assertEquals(0, pull().fetched());
    assertEquals(List.of(), requests("GET /" + FakeHub.NAME));
    Files.delete(folder.resolve("config.json"));
    assertEquals(server.bytes("config.json").length, pull().fetched());
    assertWhole();
  }

  @ParameterizedTest
  @ValueSource(strings = {"shorter", "other"})
  void somebodysFileIsNotReplaced(String kind) throws IOException {
    byte[] mine = server.bytes("config.json").clone();
    mine[3]++;
    mine = kind.equals("other") ? mine : Arrays.copyOf(mine, 5);
    Files.createDirectories(folder);
    Files.write(folder.resolve("config.json"), mine);
    refused("config.json", "is not what", "delete it");
    assertEquals(List.of("config.json"), names(folder));
    assertArrayEquals(mine, Files.readAllBytes(folder.resolve("config.json")));
  }

  @Test
  void theWeightsGetTheirNameLast() throws IOException {
    server.fault(
        cdn(WEIGHTS),
        exchange -> { // somebody gets in the way of another file, after all was looked at
          Files.createDirectories(folder.resolve("tokenizer.json/in the way"));
          return false;
        });
    refused();
    assertEquals(List.of(".loupe-pull", "config.json", "tokenizer.json"), names(folder));
  }

  @Test
  void shardsComeWithTheirIndex() throws IOException {
    server.remove(WEIGHTS);
    String index =
        """
        {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors",
        "c": "model-1.safetensors"}}
        """;
    server.put("model.safetensors.index.json", index);
    server.put("model-1.safetensors", FakeHub.weights());
    server.put("model-2.safetensors", "small");
    server.put("model-3.safetensors", "named by nobody");
    Pull.Pulled pulled = pull();
    assertEquals("model.safetensors.index.json", pulled.files().getLast());
    assertEquals(
        List.of(
            "config.json",
            "model-1.safetensors",
            "model-2.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json"),
        names(folder));
    assertEquals(0, pull().fetched());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "{\"weight_map\": {\"a\": \"../../evil\"}}",
        "{\"weight_map\": {\"a\": \"README.md/\"}}",
        "{\"weight_map\": {\"a\": \"missing.safetensors\"}}",
        "{\"weight_map\": {\"a\": 1}}",
        "{\"weight_map\": 1}",
        "{}",
        "[",
        ""
      })
  void anIndexIsNotTrusted(String index) throws IOException {
    server.remove(WEIGHTS);
    server.put("model.safetensors.index.json", index);
    server.put("../../evil", "x");
    assertTrue(refused("model.safetensors.index.json") instanceof CheckpointException);
    assertFalse(Files.exists(folder.resolve("model.safetensors.index.json")));
  }

  @Test
  void pytorchAndTheOldTokenizerAreTakenWhereThereIsNothingElse() throws IOException {
    for (String file : List.of(WEIGHTS, "tokenizer.json")) {
      server.remove(file);
    }
    server.put("vocab.json", "{}").put("merges.txt", "").put("added_tokens.json", "{}");
    server.put("tokenizer_config.json", "{}").put("spiece.model", "x");
    pull();
    assertEquals(
        List.of(
            "added_tokens.json",
            "config.json",
            "merges.txt",
            "pytorch_model.bin",
            "spiece.model",
            "tokenizer_config.json",
            "vocab.json"),
        names(folder));
  }

  @Test
  void whatIsNoModelLeavesNothing() throws IOException {
    server.remove(WEIGHTS);
    server.remove("pytorch_model.bin");
    assertTrue(refused("holds no weights", WEIGHTS) instanceof CheckpointException);
    server.put(WEIGHTS, "x");
    server.remove("config.json");
    refused("holds no config.json");
    assertFalse(Files.exists(folder));
  }

  @ParameterizedTest
  @CsvSource({
    "401, HF_TOKEN, false",
    "403, terms, false",
    "404, check the name, true",
    "400, status 400, false",
    "451, status 451, false"
  })
  void aRefusalIsSaidAtOnce(int status, String word, boolean input) throws IOException {
    server.fault(FakeHub.LIST, status(status));
    assertEquals(input, refused(word) instanceof CheckpointException);
    assertFalse(Files.exists(folder));
    server.fault(cdn(WEIGHTS), status(status));
    refused(WEIGHTS, Integer.toString(status));
    assertEquals(1, requests("GET cdn").size());
  }

  @Test
  void aRevisionThatIsMissingIsNamed() throws IOException {
    server.fault(FakeHub.LIST, status(404, "X-Error-Code", "RevisionNotFound"));
    refused("no such revision", FakeHub.NAME);
  }

  @ParameterizedTest
  @ValueSource(ints = {408, 429, 500, 502, 503, 504})
  void aBusyServerIsAskedAgain(int status) throws IOException {
    for (String request : List.of(FakeHub.LIST, head(WEIGHTS), get("config.json"), cdn(WEIGHTS))) {
      server.fault(request, status(status));
      server.fault(request, status(status, "Retry-After", "0"));
    }
    pull();
    assertWhole();
  }

  @Test
  void aServerSaysHowLongItIsBusy() throws IOException {
    server.fault(FakeHub.LIST, status(429, "Retry-After", "1"));
    long start = System.nanoTime();
    pull();
    assertWhole();
    assertTrue(System.nanoTime() - start >= 1e9, "asked too early");
  }

  @Test
  void aServerThatStaysBusyIsGivenUp() throws IOException {
    server.faults(cdn(WEIGHTS), status(503));
    refused("503", "tried 3 times");
    assertEquals(3, requests("GET cdn").size());
    assertEquals(List.of(".loupe-pull"), names(folder));
    server.faults(FakeHub.LIST, status(429));
    refused("429", "HF_TOKEN", "tried 3 times");
  }

  @Test
  void aBrokenLineIsTakenUpWhereItBroke() throws IOException {
    server.fault(cdn(WEIGHTS), server.cut(WEIGHTS, 1_000_000));
    pull();
    assertWhole();
    String again = requests("GET cdn").getLast();
    assertTrue(again.matches(".* bytes=[1-9][0-9]*- \"v1\""), again);
    assertEquals(2, requests("GET cdn").size());
  }

  @Test
  void manyBrokenLinesAreNoMatterAsLongAsSomethingComes() throws IOException {
    server.put(WEIGHTS, new byte[9_000_000]);
    for (int i = 0; i < 6; i++) {
      server.fault(
          cdn(WEIGHTS),
          exchange -> {
            String range = exchange.getRequestHeaders().getFirst("Range");
            int from = range == null ? 0 : Integer.parseInt(range.replaceAll("[^0-9]", ""));
            exchange
                .getResponseHeaders()
                .set("Content-Range", "bytes %d-8999999/9000000".formatted(from));
            exchange.sendResponseHeaders(range == null ? 200 : 206, 9_000_000 - from);
            exchange.getResponseBody().write(new byte[1_400_000]);
            exchange.getResponseBody().flush();
            return true;
          });
    }
    pull();
    assertWhole();
  }

  @Test
  void aPullThatFailedIsTakenUpByTheNext() throws IOException {
    server.fault(cdn(WEIGHTS), server.cut(WEIGHTS, 2_000_000));
    server.faults(cdn(WEIGHTS), status(500));
    refused("500");
    long kept = Files.size(part());
    assertTrue(kept > 0 && kept <= 2_000_000, kept + " bytes");
    server.close();
    server = FakeHub.withModel();
    pull();
    assertWhole();
    assertEquals(1, requests("GET cdn").size());
    assertTrue(requests("GET cdn").getFirst().endsWith(" bytes=" + kept + "-"), "" + server.log());
  }

  @Test
  void aServerWithoutRangesSendsAllAgain() throws IOException {
    server.ranges = false;
    left(Arrays.copyOf(FakeHub.weights(), 1_234_567));
    pull();
    assertWhole();
  }

  @Test
  void whatIsWholeButUnnamedIsNotFetched() throws IOException {
    left(FakeHub.weights());
    pull();
    assertWhole();
    assertEquals(List.of(), requests("GET cdn"));
  }

  @ParameterizedTest
  @ValueSource(ints = {1_000, 3_000_000, 4_000_000})
  void aDamagedLeftoverIsFetchedAnew(int size) throws IOException {
    byte[] damaged = Arrays.copyOf(FakeHub.weights(), size);
    damaged[500]++;
    left(damaged);
    pull();
    assertWhole();
  }

  @Test
  void otherContentMidwayIsNotMixedIn() throws IOException {
    server.fault(cdn(WEIGHTS), server.cut(WEIGHTS, 1_000_000));
    byte[] other = FakeHub.weights();
    other[2_999_999]++;
    server.fault(
        cdn(WEIGHTS),
        exchange -> {
          server.put(WEIGHTS, other); // the hub's word comes from its announcement before
          server.cdnEtag = "\"v2\"";
          return false;
        });
    refused(WEIGHTS, "SHA-256", FakeHub.sha256(other), FakeHub.sha256(FakeHub.weights()));
    assertTrue(requests("GET cdn").get(1).contains("\"v1\""), "" + server.log());
    assertEquals(List.of(".loupe-pull"), names(folder));
    assertEquals(0, requests("GET cdn").size() - 2, "no third time");
  }

  @Test
  void anotherAnnouncementMidwayIsSaid() throws IOException {
    left(Arrays.copyOf(FakeHub.weights(), 1000));
    byte[] other = new byte[3_000_000];
    server.fault(
        get(WEIGHTS),
        exchange -> {
          server.put(WEIGHTS, other);
          return false;
        });
    refused(WEIGHTS, "changed", "start again");
    pull();
    assertArrayEquals(other, Files.readAllBytes(folder.resolve(WEIGHTS)));
    assertEquals(FILES, names(folder), "the part of the old version is gone");
  }

  @Test
  void liesAboutTheHashAreFound() throws IOException {
    server.announce(WEIGHTS, "a".repeat(64), 3_000_000);
    refused(WEIGHTS, "SHA-256", "a".repeat(64));
    assertEquals(1, requests("GET cdn").size(), "it came in one go: no use to try again");
  }

  @Test
  void liesAboutASmallFilesHashAreFound() throws IOException {
    server.announce("config.json", "b".repeat(40), 0);
    refused("config.json", "Git SHA-1", "b".repeat(40));
  }

  @ParameterizedTest
  @ValueSource(longs = {0, 2_999_999, 3_000_001, 999_999_999})
  void liesAboutTheSizeAreFound(long size) throws IOException {
    server.announce(WEIGHTS, FakeHub.sha256(FakeHub.weights()), size);
    refused(WEIGHTS);
  }

  @Test
  void moreThanTheDiskHoldsIsNotBegun() throws IOException {
    server.announce(WEIGHTS, "a".repeat(64), 900_000_000_000_000_000L);
    refused("bytes more", "has room for");
    assertEquals(List.of(), requests("GET cdn"));
    assertFalse(Files.exists(folder));
  }

  @Test
  void moreBytesThanAnnouncedAreNotWritten() throws IOException {
    server.faults(
        cdn(WEIGHTS),
        exchange -> {
          exchange.sendResponseHeaders(200, 0); // chunked: no length
          exchange.getResponseBody().write(FakeHub.weights());
          exchange.getResponseBody().write(new byte[1000]);
          return true;
        });
    refused(WEIGHTS, "more bytes");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "bytes 0-2999999/3000000",
        "bytes 100-2999999/3000000",
        "bytes 1000-2999999/5000000",
        "bytes 1000-1999/3000000",
        "nonsense",
        ""
      })
  void otherBytesThanAskedForAreNotTaken(String range) throws IOException {
    left(Arrays.copyOf(FakeHub.weights(), 1000));
    server.faults(
        cdn(WEIGHTS),
        exchange -> {
          exchange.getResponseHeaders().set("Content-Range", range);
          FakeHub.send(exchange, 206, new byte[2_999_000]);
          return true;
        });
    refused("sent other bytes of " + WEIGHTS, "tried 3 times");
    assertEquals(List.of(".loupe-pull"), names(folder));
  }

  @Test
  void afterOtherBytesThanAskedForAllAreAskedFor() throws IOException {
    left(Arrays.copyOf(FakeHub.weights(), 1000));
    server.fault(cdn(WEIGHTS), status(206));
    pull();
    assertWhole();
    assertFalse(requests("GET cdn").getLast().contains("bytes="), "" + server.log());
  }

  @Test
  void aRangeThatIsRefusedIsAskedForFromTheStart() throws IOException {
    left(Arrays.copyOf(FakeHub.weights(), 1000));
    server.fault(cdn(WEIGHTS), status(416));
    pull();
    assertWhole();
  }

  @Test
  void aServerThatFallsSilentIsAskedAgain() throws IOException {
    server.silence = Duration.ofMillis(500);
    server.fault(cdn(WEIGHTS), server.stall(WEIGHTS, 700_000, Duration.ofSeconds(100)));
    server.fault(
        head("config.json"),
        exchange -> {
          FakeHub.pause(Duration.ofSeconds(100));
          return true;
        });
    long start = System.nanoTime();
    pull();
    assertWhole();
    assertTrue(System.nanoTime() - start < 90e9, "silence is not waited out");
    assertTrue(requests("GET cdn").getLast().contains("bytes="), "" + server.log());
  }

  @Test
  void aServerThatStaysSilentIsGivenUp() throws IOException {
    server.silence = Duration.ofMillis(300);
    server.faults(cdn(WEIGHTS), server.stall(WEIGHTS, 0, Duration.ofSeconds(100)));
    refused("in the middle of " + WEIGHTS, "tried 3 times");
  }

  @Test
  void circlesOfRedirectsEnd() throws IOException {
    for (int i = 0; i < 11; i++) {
      server.fault(get(WEIGHTS), status(302, "Location", get(WEIGHTS).substring(4)));
    }
    refused("circles", WEIGHTS);
    server.fault(FakeHub.LIST, status(307, "Location", FakeHub.LIST.substring(4)));
    pull();
    assertWhole();
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"file:///etc/passwd", "ftp://localhost/x", "", "http://", "::", "http:/x y"})
  void redirectsLeadToTheWebOnly(String location) throws IOException {
    server.fault(get(WEIGHTS), status(302, "Location", location));
    refused("redirects " + WEIGHTS);
  }

  @Test
  void redirectsLeadFromASecureServerToASecureOneOnly() throws IOException {
    URI secure = URI.create("https://hub.example.org/a/b");
    assertEquals(URI.create("https://hub.example.org/c"), Hub.next(secure, "/c", "x"));
    assertEquals(URI.create("https://cdn.org/c"), Hub.next(secure, "https://cdn.org/c", "x"));
    assertThrows(IOException.class, () -> Hub.next(secure, "http://hub.example.org/a/b", "x"));
  }

  @Test
  void aSmallFileMayLieElsewhereOnTheHub() throws IOException {
    for (String request : List.of(head("config.json"), get("config.json"))) {
      String elsewhere = "/api/resolve-cache/models/" + FakeHub.NAME + "/config.json";
      server.fault(request, status(307, "Location", elsewhere));
    }
    pull();
    assertWhole();
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "<html>log in</html>",
        "",
        "[]",
        "{}",
        "{\"sha\": \"0123456789\"}",
        "{\"sha\": \"../../x\", \"siblings\": []}",
        "{\"sha\": \"0123456789\", \"siblings\": [1]}",
        "{\"sha\": \"0123456789\", \"siblings\": [{\"rfilename\": null}]}"
      })
  void anAnswerThatIsNoHubsIsSaid(String answer) throws IOException {
    server.fault(
        FakeHub.LIST,
        exchange -> {
          FakeHub.send(exchange, 200, answer.getBytes(UTF_8));
          return true;
        });
    refused("not as a hub does", "address");
  }

  @Test
  void anEndlessListIsNotRead() throws IOException {
    server.fault(
        FakeHub.LIST,
        exchange -> {
          exchange.sendResponseHeaders(200, 0);
          for (int i = 0; i < 400; i++) {
            exchange.getResponseBody().write(new byte[1 << 16]);
          }
          return true;
        });
    refused("lists more than");
  }

  @Test
  void deepJsonIsNoStackOverflow() throws IOException {
    server.fault(
        FakeHub.LIST,
        exchange -> {
          FakeHub.send(exchange, 200, "[".repeat(1_000_000).getBytes(UTF_8));
          return true;
        });
    refused("not as a hub does");
  }

  @Test
  void whatCannotBeCheckedIsNotFetched() throws IOException {
    server.faults(
        head("config.json"),
        exchange -> {
          exchange.getResponseHeaders().set("ETag", "\"abc\"");
          FakeHub.send(exchange, 200, server.bytes("config.json"));
          return true;
        });
    refused("no hash of config.json");
  }

  @Test
  void aHubThatWasNeverReachedIsNotWaitedFor() throws IOException {
    server.close();
    String message = String.valueOf(refused("localhost:", "takes no connection").getMessage());
    assertFalse(message.contains("tried"), message);
  }

  @Test
  void aHubThatWasReachedIsTriedAgain() throws IOException {
    server.fault(
        head("config.json"),
        exchange -> {
          server.close();
          return true;
        });
    refused("localhost:", "tried 3 times");
  }

  @Test
  void progressGrowsAndEndsAPull() throws IOException {
    server.faults(cdn(WEIGHTS), server.stall(WEIGHTS, 1_500_000, Duration.ofSeconds(100)));
    long[] most = new long[2];
    assertThrows(
        CancellationException.class,
        () ->
            pull(
                (done, total) -> {
                  most[0] = done;
                  most[1] = total;
                  if (done >= 1_000_000) {
                    throw new CancellationException("enough");
                  }
                }));
    assertTrue(most[0] <= most[1] && most[1] > 3_000_000 && most[1] < 3_001_000, most[1] + "");
    assertEquals(List.of(".loupe-pull"), names(folder));
    assertFalse(Files.exists(folder.resolve(".loupe-pull/lock")), "it was unlocked");
    assertTrue(Files.size(part()) >= 1_000_000, "what has come is kept");
  }

  @Test
  void twoAtOnceAreOneTooMany() throws Exception {
    CountDownLatch reached = new CountDownLatch(1);
    CountDownLatch refused = new CountDownLatch(1);
    server.fault(
        cdn(WEIGHTS),
        exchange -> {
          reached.countDown();
          try {
            refused.await(100, TimeUnit.SECONDS);
          } catch (InterruptedException e) {
            throw new IOException(e);
          }
          return false;
        });
    IOException[] failure = new IOException[1];
    Thread first =
        Thread.ofVirtual()
            .start(
                () -> {
                  try (Hub hub = new Hub(server.settings())) {
                    Pull.run(hub, ModelName.of(FakeHub.NAME), file, folder, Progress.NONE);
                  } catch (IOException e) {
                    failure[0] = e;
                  }
                });
    assertTrue(reached.await(100, TimeUnit.SECONDS));
    refused("another loupe", folder.toString());
    refused.countDown();
    first.join();
    assertEquals(null, failure[0]);
    assertWhole();
  }

  @Test
  void aFolderThatCannotBeMadeIsSaid() throws IOException {
    Files.writeString(temporary.resolve("file"), "x");
    folder = temporary.resolve("file");
    refused(folder.toString(), "can't be written to");
  }
}
