package dev.loupe.hub;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Names, and what lies on this machine under them. */
class ModelCacheTest {
  private static final String COMMIT = "607a30d783dfa663caf39e06633721c8d4cfcd7e";

  @TempDir Path home;
  private final Map<String, String> environment = new HashMap<>();

  private ModelCache cache() {
    return new ModelCache(home.resolve("own"), environment::get, home.toString());
  }

  private Optional<Path> find(String name) {
    return cache().find(ModelName.of(name));
  }

  private static Path model(Path folder) throws IOException {
    Files.createDirectories(folder);
    Files.writeString(folder.resolve("config.json"), "{}");
    Files.writeString(folder.resolve("model.safetensors"), "");
    return folder;
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "/",
        "/gpt2",
        "a/",
        "a/b/c",
        "../x",
        "a/..",
        "a/b..c",
        "a--b/c",
        "a b",
        "a/b@",
        "a@b@c",
        "a/b@../../x",
        "a/b@x y",
        "@main",
        ".hidden",
        "a/.b",
        "a/b@/x",
        "a\\b",
        "C:\\models",
        "a\n",
        "http://x/y"
      })
  void whatIsNoName(String text) {
    assertThrows(IllegalArgumentException.class, () -> ModelName.of(text));
    assertEquals(Optional.empty(), ModelName.find(text));
  }

  @ParameterizedTest
  @CsvSource({
    "openai-community/gpt2, models/openai-community/gpt2",
    "gpt2, models/gpt2",
    "gpt2@main, models/gpt2",
    "a/b.c_d@v1.0, models/a/b.c_d@v1.0",
    "a/b@refs/pr/1, models/a--b@refs--pr--1"
  })
  void everyNameHasAFolder(String name, String folder) throws IOException {
    assertEquals(home.resolve("own").resolve(folder), cache().folder(ModelName.of(name)));
  }

  @Test
  void withoutACacheFolderThereIsNone() {
    ModelCache none = new ModelCache(null, environment::get, "?");
    IOException e =
        assertThrows(IOException.class, () -> none.folder(ModelName.of("openai-community/gpt2")));
    assertTrue(String.valueOf(e.getMessage()).contains("LOUPE_CACHE"));
    assertEquals(Optional.empty(), none.find(ModelName.of("openai-community/gpt2")));
  }

  @Test
  void findsWhatWasPulled() throws IOException {
    assertEquals(Optional.empty(), find("a/b"));
    Path folder = model(home.resolve("own/models/a/b"));
    assertEquals(Optional.of(folder), find("a/b"));
    assertEquals(Optional.empty(), find("a/b@v2"));
    Files.delete(folder.resolve("model.safetensors"));
    assertEquals(Optional.empty(), find("a/b"), "a pull that was not ended");
    Files.writeString(folder.resolve("pytorch_model.bin"), "");
    assertEquals(Optional.of(folder), find("a/b"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"own/models/a/b", ".cache/huggingface/hub/models--a--b/snapshots/main"})
  void findsFilesOfGgufAndAdapters(String place) throws IOException {
    Path folder = Files.createDirectories(home.resolve(place));
    Path gguf = Files.writeString(folder.resolve("model-q4.gguf"), "");
    assertEquals(Optional.of(folder), find("a/b"));
    Files.delete(gguf);
    Files.createSymbolicLink(gguf, home.resolve("deleted"));
    assertEquals(Optional.empty(), find("a/b"), "a link that leads nowhere");
    Files.writeString(folder.resolve("adapter_model.safetensors"), "");
    assertEquals(Optional.empty(), find("a/b"));
    Files.writeString(folder.resolve("adapter_config.json"), "{}");
    assertEquals(Optional.of(folder), find("a/b"));
  }

  @Test
  void findsWhatHuggingFaceLeft() throws IOException {
    Path model = home.resolve(".cache/huggingface/hub/models--a--b");
    Path snapshot = model(model.resolve("snapshots").resolve(COMMIT));
    assertEquals(Optional.empty(), find("a/b"), "no ref says which");
    assertEquals(Optional.of(snapshot), find("a/b@" + COMMIT));
    Files.createDirectories(model.resolve("refs/refs/pr"));
    Files.writeString(model.resolve("refs/main"), COMMIT);
    Files.writeString(model.resolve("refs/refs/pr/1"), COMMIT);
    assertEquals(Optional.of(snapshot), find("a/b"));
    assertEquals(Optional.of(snapshot), find("a/b@refs/pr/1"));
    assertEquals(Optional.empty(), find("a/c"));

    Path own = model(home.resolve("own/models/a/b"));
    assertEquals(Optional.of(own), find("a/b"), "Loupe's own comes first");
  }

  @Test
  void readsThroughItsLinks() throws IOException {
    Path model = home.resolve(".cache/huggingface/hub/models--gpt2");
    Path snapshot = Files.createDirectories(model.resolve("snapshots").resolve(COMMIT));
    Files.createDirectories(model.resolve("blobs"));
    Files.writeString(Files.createDirectories(model.resolve("refs")).resolve("main"), COMMIT);
    for (String file : new String[] {"config.json", "model.safetensors"}) {
      Files.createSymbolicLink(snapshot.resolve(file), Path.of("../../blobs", file));
    }
    assertEquals(Optional.empty(), find("gpt2"), "links to nothing");
    Files.writeString(model.resolve("blobs/config.json"), "{}");
    assertEquals(Optional.empty(), find("gpt2"), "no weights yet");
    Files.writeString(model.resolve("blobs/model.safetensors"), "");
    assertEquals(Optional.of(snapshot), find("gpt2"));
  }

  @Test
  void theEnvironmentSaysWhere() throws IOException {
    Path[] hubs = {
      home.resolve("a/huggingface/hub"), home.resolve("b/hub"), home.resolve("c"), home.resolve("d")
    };
    for (Path hub : hubs) {
      model(hub.resolve("models--m/snapshots/" + COMMIT));
    }
    String[] variables = {"XDG_CACHE_HOME", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"};
    String[] values = {home + "/a", "~/b", home + "/c", home + "/d"};
    for (int i = 0; i < variables.length; i++) {
      environment.put(variables[i], values[i]);
      assertEquals(
          Optional.of(hubs[i].resolve("models--m/snapshots/" + COMMIT)), find("m@" + COMMIT));
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "../../..", "x y", "\n"})
  void aRefThatIsNoCommitLeadsNowhere(String ref) throws IOException {
    Path model = home.resolve(".cache/huggingface/hub/models--a--b");
    model(model.resolve("snapshots").resolve(COMMIT));
    model(home.resolve(".cache"));
    Files.writeString(Files.createDirectories(model.resolve("refs")).resolve("main"), ref);
    assertEquals(Optional.empty(), find("a/b"));
  }
}
