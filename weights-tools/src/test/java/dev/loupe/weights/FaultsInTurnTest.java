package dev.loupe.weights;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.ggml.GgmlType;
import dev.loupe.weights.io.AtomicFile;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Every step of writing a model fails in turn: what is there afterwards is whole, or nothing. */
class FaultsInTurnTest {
  @TempDir Path folder;
  private Path model;

  @BeforeEach
  void make() throws IOException {
    model =
        ModelFolder.random(folder.resolve("m"), ModelFolder.LEAST, RandomCheckpoint.Layout.PLAIN);
    Files.writeString(model.resolve("generation_config.json"), "{\"eos_token_id\": 3}");
  }

  private Path fresh(int n) throws IOException {
    return Files.createDirectory(folder.resolve("f" + n));
  }

  private static List<String> names(Path folder) throws IOException {
    try (Stream<Path> files = Files.walk(folder)) {
      return files.skip(1).map(file -> folder.relativize(file).toString()).sorted().toList();
    }
  }

  private static void nothingIsLeft(Path folder, IOException failure) throws IOException {
    assertEquals(List.of(), names(folder), failure::getMessage);
  }

  @Test
  void oneFile() throws IOException {
    int faults =
        FaultyFiles.inTurn(
            n -> {
              Path fresh = fresh(n);
              Files.writeString(fresh.resolve("a"), "old");
              return fresh;
            },
            fresh -> {
              try (AtomicFile file = AtomicFile.create(fresh.resolve("a"))) {
                for (int i = 0; i < 3; i++) {
                  file.stream().write(("new" + i).getBytes(UTF_8));
                  file.stream().flush();
                }
                file.commit();
              }
            },
            (fresh, failure) -> {
              assertEquals(List.of("a"), names(fresh));
              assertEquals("old", Files.readString(fresh.resolve("a")));
              assertTrue(
                  String.valueOf(failure.getMessage()).contains(fresh.resolve("a").toString()));
            });
    assertEquals(5, faults, "one to open, three writes, a rename");
  }

  @Test
  void aModelInANewFolder() throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(model)) {
      int faults =
          FaultyFiles.inTurn(
              this::fresh,
              fresh ->
                  Gpt2Safetensors.write(
                      checkpoint,
                      Optional.empty(),
                      Map.of("tokenizer.json", new byte[] {'{', '}'}),
                      fresh.resolve("out"),
                      Progress.NONE),
              FaultsInTurnTest::nothingIsLeft);
      assertTrue(faults > 12, faults + " faults");
    }
  }

  @Test
  void aModelInOneFileOfGguf() throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(model)) {
      Vocabulary.Token[] tokens = new Vocabulary.Token[5];
      for (int id = 0; id < tokens.length; id++) {
        tokens[id] = new Vocabulary.Token("" + (char) ('a' + id), Vocabulary.Kind.NORMAL);
      }
      int faults =
          FaultyFiles.inTurn(
              this::fresh,
              fresh ->
                  Gpt2Gguf.write(
                      checkpoint,
                      new Vocabulary(List.of(tokens), List.of("a b")),
                      GgmlType.F32,
                      fresh.resolve("m.gguf"),
                      Progress.NONE),
              FaultsInTurnTest::nothingIsLeft);
      assertTrue(faults > 10, faults + " faults");
    }
  }

  @Test
  void aRandomModel() throws IOException {
    int faults =
        FaultyFiles.inTurn(
            this::fresh,
            fresh ->
                RandomCheckpoint.write(
                    ModelFolder.LEAST,
                    3,
                    fresh.resolve("out"),
                    RandomCheckpoint.Layout.PLAIN,
                    Progress.NONE),
            FaultsInTurnTest::nothingIsLeft);
    assertTrue(faults > 10, faults + " faults");
  }
}
