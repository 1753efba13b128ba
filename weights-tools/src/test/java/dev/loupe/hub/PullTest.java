package dev.loupe.hub;

import static dev.loupe.hub.FakeHub.cdn;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.FaultyFiles;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.Progress;
import java.io.IOException;
import java.nio.file.Files;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What a pull brings, and what it leaves in the folder. */
@Timeout(200)
class PullTest extends PullFixture {
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
