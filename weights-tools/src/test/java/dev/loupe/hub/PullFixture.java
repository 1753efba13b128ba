package dev.loupe.hub;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.io.Progress;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;

/** A pull into a folder, from a hub that a test makes misbehave. */
abstract class PullFixture {
  static final String WEIGHTS = "model.safetensors";
  static final List<String> FILES = List.of("config.json", WEIGHTS, "tokenizer.json");

  @TempDir Path temporary;
  Path folder;
  FakeHub server;
  Optional<String> file = Optional.empty();

  @BeforeEach
  void start() throws IOException {
    server = FakeHub.withModel();
    folder = temporary.resolve("made");
  }

  @AfterEach
  void stop() {
    server.close();
  }

  Pull.Pulled pull() throws IOException {
    return pull(Progress.NONE);
  }

  Pull.Pulled pull(Progress progress) throws IOException {
    try (Hub hub = new Hub(server.settings())) {
      return Pull.run(hub, ModelName.of(FakeHub.NAME), file, folder, progress);
    }
  }

  void assertWhole() throws IOException {
    assertEquals(FILES, names(folder));
    for (String file : FILES) {
      assertArrayEquals(server.bytes(file), Files.readAllBytes(folder.resolve(file)), file);
    }
  }

  /** One sentence with these words; and the folder doesn't look like a model. */
  IOException refused(String... words) throws IOException {
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

  static List<String> names(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.map(file -> file.getFileName().toString()).sorted().toList();
    }
  }

  List<String> requests(String start) {
    return server.log().stream().filter(line -> line.startsWith(start)).toList();
  }

  Path part() {
    return folder
        .resolve(".loupe-pull")
        .resolve("%s.%s.part".formatted(WEIGHTS, FakeHub.sha256(FakeHub.weights())));
  }

  void left(byte[] bytes) throws IOException {
    Files.createDirectories(part().getParent());
    Files.write(part(), bytes);
  }
}
