package dev.loupe.cli.run;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import java.awt.image.BufferedImage;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.zip.ZipFile;
import javax.imageio.ImageIO;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The files that {@code --attention} names: whole or not there. */
class OutputFilesTest {
  @TempDir Path folder;

  private static Set<String> arrays(Path npz) throws IOException {
    try (ZipFile zip = new ZipFile(npz.toFile())) {
      Set<String> names = new TreeSet<>();
      zip.stream().forEach(entry -> names.add(entry.getName()));
      return names;
    }
  }

  private static JsonObject json(Path file) throws IOException {
    return JsonParser.parseString(Files.readString(file)).getAsJsonObject();
  }

  @Test
  void statisticsComeWithoutMaps() throws IOException {
    Path npz = folder.resolve("s.npz");
    Path csv = folder.resolve("s.csv");
    Path json = folder.resolve("s.json");
    Ran ran =
        Ran.loupe(
                "attention",
                "To be",
                "--stats",
                npz,
                "--stats",
                csv,
                "--stats",
                json,
                "--layers",
                2)
            .well();
    assertEquals("", ran.out());
    assertTrue(ran.err().contains("layers 2, heads 0-2: " + npz + ", " + csv), ran.err());
    assertEquals(List.of("s.csv", "s.json", "s.npz"), Ran.names(folder));
    assertTrue(arrays(npz).containsAll(Set.of("entropy.npy", "top_keys.npy", "tokens.npy")));
    assertTrue(arrays(npz).containsAll(Set.of("head_induction.npy", "head_edges.npy")));
    assertFalse(arrays(npz).contains("attention.npy"));
    assertFalse(
        arrays(npz).contains("head_weighted_norm.npy") || arrays(npz).contains("rollout.npy"));
    assertTrue(json(json).get("attention").isJsonNull());
    Ran.loupe("generate", "To be", "-n", 2, "--stats", csv, "--attention", npz).well();
    assertTrue(arrays(npz).contains("attention.npy"));
    int tokens = json(json).getAsJsonArray("tokens").size();
    assertEquals(1 + 18 * (tokens + 2), Files.readAllLines(csv).size());
  }

  @Test
  void valueNormsAndRolloutComeOnRequest() throws IOException {
    Path npz = folder.resolve("s.npz");
    Ran.loupe(
            "generate", "To be", "-n", 3, "--stats", npz, "--value-norms", "--rollout", "--greedy")
        .well();
    assertTrue(arrays(npz).containsAll(Set.of("head_weighted_norm.npy", "rollout.npy")));
  }

  @Test
  void writesEveryFormatInOneRun() throws IOException {
    Path npz = folder.resolve("a.npz");
    Path html = folder.resolve("a.html");
    Path png = folder.resolve("a.PNG");
    Path csv = folder.resolve("a.csv");
    Path json = folder.resolve("a.json");
    Ran ran =
        Ran.loupe(
                "generate",
                "ROMEO:",
                "-n",
                5,
                "--greedy",
                "--attention",
                npz,
                "--attention",
                html,
                "--attention",
                png,
                "--attention",
                csv,
                "--attention",
                json,
                "--layers",
                "1,3-4",
                "--heads",
                "2",
                "--scores",
                "--logprobs",
                2)
            .well();
    assertEquals(List.of("a.PNG", "a.csv", "a.html", "a.json", "a.npz"), Ran.names(folder));
    assertEquals(
        Set.of(
            "attention.npy",
            "heads.npy",
            "layers.npy",
            "logprobs.npy",
            "prompt_len.npy",
            "scores.npy",
            "token_ids.npy",
            "tokens.npy"),
        arrays(npz));
    assertTrue(Files.readString(html).startsWith("<!doctype html>"), "a page");
    BufferedImage picture = ImageIO.read(png.toFile());
    assertTrue(picture.getWidth() > 100);
    assertTrue(Files.readAllLines(csv).size() > 3);
    JsonObject run = json(json);
    assertEquals(ran.out(), run.get("text").getAsString());
    assertEquals("[1,3,4]", run.getAsJsonObject("attention").get("layers").toString());
    assertEquals("[2]", run.getAsJsonObject("attention").get("heads").toString());
    assertEquals(
        2,
        run.getAsJsonArray("tokens").get(3).getAsJsonObject().getAsJsonArray("top").size(),
        "--logprobs shows in the file");
    assertTrue(ran.err().contains("layers 1,3-4, heads 2"), ran.err());
    for (Path file : List.of(npz, html, png, csv, json)) {
      assertTrue(ran.err().contains(file.toString()), ran.err());
    }
  }

  @Test
  void severalSamplesGetNumberedFiles() throws IOException {
    Ran ran =
        Ran.loupe(
                "generate",
                "ROMEO:",
                "-n",
                6,
                "--seed",
                3,
                "--samples",
                3,
                "--json",
                "--attention",
                folder.resolve("a.b.json"),
                "--attention",
                folder.resolve("m.csv"))
            .well();
    assertEquals(
        List.of("a.b-1.json", "a.b-2.json", "a.b-3.json", "m-1.csv", "m-2.csv", "m-3.csv"),
        Ran.names(folder));
    for (int i = 0; i < 3; i++) {
      Path file = folder.resolve("a.b-" + (i + 1) + ".json");
      JsonObject printed = ran.json().get(i);
      assertEquals(printed.get("text"), json(file).get("text"));
      assertEquals(file.toString(), printed.getAsJsonObject("attention").get("file").getAsString());
      assertTrue(ran.err().contains(file.toString()), ran.err());
      assertTrue(ran.err().contains("m-" + (i + 1) + ".csv"), ran.err());
    }
    assertNotEquals(ran.json().get(0).get("text"), ran.json().get(1).get("text"));
  }

  @Test
  void anOlderFileIsReplacedWhenTheNewOneIsWhole() throws IOException {
    Path file = Files.writeString(folder.resolve("a.csv"), "old");
    Ran.loupe("attention", "x", "--attention", file, "--layers", 9).refused(ExitCode.BAD_USAGE);
    assertEquals("old", Files.readString(file));
    assertEquals(List.of("a.csv"), Ran.names(folder));
    Ran.loupe("attention", "x", "--attention", file).well();
    assertTrue(Files.readString(file).lines().count() > 1);
    assertEquals(List.of("a.csv"), Ran.names(folder));
  }

  @Test
  void aFileMayHaveItsNameTwice() throws IOException {
    Path file = folder.resolve("a.csv");
    Ran.loupe("attention", "x", "--attention", file, "--attention", file).well();
    assertEquals(List.of("a.csv"), Ran.names(folder));
  }

  @ParameterizedTest
  @ValueSource(strings = {"generate", "attention"})
  void aMissingFolderShowsBeforeTheModelIsOpened(String command) {
    Path file = folder.resolve("missing").resolve("a.npz");
    Ran.loupe(command, "x", "--attention", file, "-m", folder.resolve("no-model"))
        .refused(ExitCode.FAILED, file, "no folder", folder.resolve("missing"));
  }

  @Test
  void aFolderIsNoFile() throws IOException {
    Path target = Files.createDirectory(folder.resolve("a.npz"));
    Ran.loupe("attention", "x", "--attention", target)
        .refused(ExitCode.FAILED, target, "is a folder");
    assertEquals(List.of("a.npz"), Ran.names(folder));
  }

  @Test
  void aReadOnlyFolderTakesNoFile() throws IOException {
    Path closed = Files.createDirectory(folder.resolve("closed"));
    assertTrue(closed.toFile().setWritable(false));
    assumeFalse(Files.isWritable(closed), "this user may write anywhere");
    Ran.loupe("attention", "x", "--attention", closed.resolve("a.npz"))
        .refused(ExitCode.FAILED, closed.resolve("a.npz"), "permission denied");
  }

  @Test
  void oneFileThatCannotBeBegunLeavesNoOther() throws IOException {
    Ran.loupe(
            "attention",
            "x",
            "--attention",
            folder.resolve("a.npz"),
            "--attention",
            folder.resolve("missing").resolve("b.npz"))
        .refused(ExitCode.FAILED, "b.npz");
    assertEquals(List.of(), Ran.names(folder));
  }

  @ParameterizedTest
  @ValueSource(strings = {"a.foo", "a", ".", "npz", "a.npz.gz", "a.npz/"})
  void theEndingNamesTheFormat(String name) throws IOException {
    Ran.loupe("generate", "x", "--attention", folder + "/" + name, "-m", folder.resolve("no-model"))
        .refused(name.equals("a.npz/") ? ExitCode.BAD_INPUT : ExitCode.BAD_USAGE);
    assertEquals(List.of(), Ran.names(folder));
  }

  @ParameterizedTest
  @ValueSource(strings = {"npz", "json", "csv", "html"})
  void aFullDiskIsSaidAndTheOtherFilesAreWhole(String ending) throws IOException {
    Path full = Path.of("/dev/full");
    assumeTrue(Files.exists(full), "no /dev/full here");
    Path target = Files.createSymbolicLink(folder.resolve("full." + ending), full);
    Ran.loupe(
            "attention",
            "ROMEO:",
            "--attention",
            folder.resolve("a.csv"),
            "--attention",
            target,
            "--attention",
            folder.resolve("z.csv"))
        .refused(ExitCode.FAILED, target, "can't be written", "no space left");
    assertEquals(List.of("a.csv", "full." + ending, "z.csv"), Ran.names(folder));
    assertArrayEquals(
        Files.readAllBytes(folder.resolve("a.csv")), Files.readAllBytes(folder.resolve("z.csv")));
  }

  @ParameterizedTest
  @ValueSource(strings = {"json", "csv", "png", "html"})
  @Timeout(200)
  void aPipeIsWrittenThroughAndStays(String ending) throws Exception {
    Path pipe = folder.resolve("pipe." + ending);
    Path file = folder.resolve("file." + ending);
    assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
    Process reader = new ProcessBuilder("cat", pipe.toString()).start();
    CompletableFuture<byte[]> read =
        CompletableFuture.supplyAsync(
            () -> {
              try {
                return reader.getInputStream().readAllBytes();
              } catch (IOException e) {
                throw new UncheckedIOException(e);
              }
            });
    Ran.loupe("attention", "x", "--attention", pipe, "--attention", file).well();
    assertFalse(Files.isRegularFile(pipe));
    if (!ending.equals("json")) { // which holds the time it took
      assertArrayEquals(Files.readAllBytes(file), read.get());
    }
    assertTrue(read.get().length > 100);
  }
}
