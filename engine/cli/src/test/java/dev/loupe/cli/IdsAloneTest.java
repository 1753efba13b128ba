package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.TinyModel;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Token;
import dev.loupe.model.Golden;
import dev.loupe.sampling.Sampling;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A model without a tokenizer: token ids in, token ids out, and their numbers as labels. */
class IdsAloneTest {
  private static final String IDS = "5,300,17,17,0,331,5,300";

  @TempDir Path folder;
  private Path model;

  @BeforeEach
  void make() throws IOException {
    model = TinyModel.ofIds(folder.resolve("model")).folder();
  }

  @Test
  void idsComeOut() throws Exception {
    Ran ran = Ran.loupe("generate", "-m", model, "--ids", IDS, "-n", 7, "--greedy").well();
    assertTrue(ran.err().contains("token ids alone"), ran.err());
    assertTrue(ran.err().contains("tokenizer.json"), ran.err());
    int[] written = Arrays.stream(ran.out().split(",")).mapToInt(Integer::parseInt).toArray();
    GenerateRequest request =
        GenerateRequest.ids(5, 300, 17, 17, 0, 331, 5, 300).tokens(7).sampling(Sampling.greedy());
    try (Loupe loupe = Loupe.open(model)) {
      assertTrue(loupe.notes().getFirst().contains("token ids alone"), loupe.notes().toString());
      List<Token> tokens = loupe.run(request).getFirst().tokens();
      assertArrayEquals(tokens.stream().skip(8).mapToInt(Token::id).toArray(), written);
      Throwable refused =
          assertThrows(IllegalArgumentException.class, () -> loupe.run(GenerateRequest.text("a")));
      assertTrue(String.valueOf(refused.getMessage()).contains("tokenizer.json"));
      assertThrows(IllegalArgumentException.class, () -> loupe.run(request.stops(List.of("a"))));
    }
    String again = IDS + "," + ran.out().substring(0, ran.out().lastIndexOf(','));
    String last = ran.out().substring(ran.out().lastIndexOf(',') + 1);
    assertEquals(
        last, Ran.loupe("generate", "-m", model, "--ids", again, "-n", 1, "--greedy").well().out());
    assertEquals("", Ran.loupe("generate", "-m", model, "--ids", "1", "-n", 1, "-q").well().err());
  }

  @Test
  void samplesAndTheBeginningOfText() {
    Ran ran = Ran.loupe("generate", "-m", model, "--samples", 3, "-n", 4).well();
    List<String> lines = ran.out().lines().toList();
    assertEquals(6, lines.size(), ran.out());
    assertEquals("--- 2 of 3 ---", lines.get(2));
    for (int i = 1; i < 6; i += 2) {
      assertTrue(lines.get(i).matches("[0-9]+(,[0-9]+){0,3}"), lines.get(i));
    }
  }

  @Test
  void everyCommandLabelsTokensById() throws IOException {
    Path maps = folder.resolve("maps");
    Files.createDirectory(maps);
    Object[] command = {"attention", "-m", model, "--ids", IDS, "--json"};
    JsonObject run = Ran.loupe(command).well().json().getFirst();
    JsonObject token = run.getAsJsonArray("tokens").get(1).getAsJsonObject();
    assertEquals("300", token.get("label").getAsString());
    assertEquals("300", token.get("raw").getAsString());
    assertEquals("", token.get("bytes_hex").getAsString());
    assertEquals("", run.get("text").getAsString());
    String table = Ran.loupe("attention", "-m", model, "--ids", IDS).well().out();
    assertTrue(table.contains("331"), table);
    Ran.loupe(
            "attention",
            "-m",
            model,
            "--ids",
            IDS,
            "--attention",
            maps.resolve("a.html"),
            "--attention",
            maps.resolve("a.png"),
            "--attention",
            maps.resolve("a.csv"),
            "--attention",
            maps.resolve("a.npz"),
            "--attention",
            maps.resolve("a.json"),
            "--stats",
            maps.resolve("s.json"),
            "--stats",
            maps.resolve("s.csv"))
        .well();
    for (String name : List.of("a.html", "a.csv", "a.json", "s.json", "s.csv")) {
      assertTrue(Files.readString(maps.resolve(name)).contains("331"), name);
    }
    assertTrue(Files.size(maps.resolve("a.png")) > 0 && Files.size(maps.resolve("a.npz")) > 0);
    String lens = Ran.loupe("lens", "-m", model, "--ids", IDS, "--at", 4).well().out();
    assertTrue(lens.startsWith("After 0, token 4, 331 is "), lens);
    Ran.loupe("lens", "-m", model, "--ids", IDS, "--target", 332, "--json").well();
    Ran.loupe("heads", "-m", model).well();
    Ran.loupe("heads", "-m", model, "--ids", IDS).well();
    String change = Ran.loupe("compare", "-m", model, "--ids", IDS, "--ablate", "1.0").well().out();
    assertTrue(change.contains("331"), change);
    Ran.loupe("generate", "-m", model, "--ids", IDS, "-n", 3, "--attention", maps.resolve("g.html"))
        .well();
    Ran.loupe("bench", "decode", "-m", model, "-n", 4, "--runs", 1, "--prompt-tokens", 6).well();
  }

  @Test
  void whatTakesATextIsRefused() throws IOException {
    Path file = folder.resolve("maps.npz");
    Ran.loupe("generate", "hello", "-m", model, "--attention", file)
        .refused(ExitCode.BAD_INPUT, "tokenizer.json");
    Ran.loupe("generate", "--ids", IDS, "--stop", "x", "-m", model)
        .refused(ExitCode.BAD_INPUT, "tokenizer.json");
    Ran.loupe("lens", "hello", "-m", model).refused(ExitCode.BAD_INPUT, "tokenizer.json");
    Ran.loupe("heads", "hello", "-m", model).refused(ExitCode.BAD_INPUT, "tokenizer.json");
    Ran.loupe("compare", "hello", "--ablate", "0.1", "-m", model)
        .refused(ExitCode.BAD_INPUT, "tokenizer.json");
    Ran.loupe("generate", "--ids", IDS, "--special", "-m", model)
        .refused(ExitCode.BAD_USAGE, "--special");
    Ran.loupe("generate", "--ids", IDS, "--no-bos", "-m", model)
        .refused(ExitCode.BAD_USAGE, "--no-bos is about text");
    Ran.loupe("generate", "--ids", "1,333", "-m", model, "-q")
        .refused(ExitCode.BAD_USAGE, "token id 333 is outside the vocabulary 0..332");
    Ran.loupe("lens", "--ids", "1", "--target", 333, "-m", model, "-q")
        .refused(ExitCode.BAD_USAGE, "token id 333 is outside the vocabulary 0..332");
    assertFalse(Files.exists(file));
  }

  /** What is there but can't be used, or does not fit, is named; ids need none of it. */
  @ParameterizedTest
  @ValueSource(strings = {"{", "{}", "{'model': {'type': 'Nonsense'}}", "demo"})
  void aTokenizerThatCantBeUsed(String json) throws IOException {
    Path tokenizer = model.resolve("tokenizer.json");
    if (json.equals("demo")) {
      Files.copy(Golden.DEMO_MODEL.resolve("tokenizer.json"), tokenizer);
    } else {
      Files.writeString(tokenizer, json.replace('\'', '"'));
    }
    String words = json.equals("demo") ? "do not belong together" : "tokenizer.json";
    Ran.loupe("generate", "hello", "-m", model).refused(ExitCode.BAD_INPUT, words);
    Ran ran = Ran.loupe("generate", "--ids", IDS, "-n", 3, "-m", model).well();
    assertTrue(ran.err().contains(words), ran.err());
    assertTrue(ran.out().matches("[0-9]+(,[0-9]+)*"), ran.out());
  }

  @Test
  void aTerminalGetsALineOfIds() {
    Ran ran = Ran.onTerminal("generate", "--ids", IDS, "-n", 3, "--greedy", "-m", model);
    String line = ran.out().lines().collect(Collectors.joining("|"));
    assertTrue(line.matches("[0-9]+(,[0-9]+)*"), line);
  }
}
