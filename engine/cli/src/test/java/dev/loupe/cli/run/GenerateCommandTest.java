package dev.loupe.cli.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.model.Golden;
import dev.loupe.sampling.Sampling;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** {@code loupe generate} on the demo model. */
class GenerateCommandTest {
  @Test
  void printsTheTextAndNothingElse() throws Exception {
    Ran ran = Ran.loupe("generate", "ROMEO:", "-n", 30, "--seed", 5, "--temperature", 1.1).well();
    Sampling sampling = new Sampling(1.1, 40, 0.95, 0, 1, 5);
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults())) {
      String text =
          loupe.run(GenerateRequest.text("ROMEO:").tokens(30).sampling(sampling)).getFirst().text();
      assertEquals(text, ran.out());
    }
    assertTrue(
        ran.err().matches("\\[read \\d+ tokens in \\d+ ms, wrote 30 in .*; seed 5]\n"), ran.err());
  }

  @Test
  void aSeedRepeatsATextAndIsSaid() {
    Ran first = Ran.loupe("generate", "ROMEO:", "-n", 30).well();
    Matcher seed = Pattern.compile("seed (\\d+)]").matcher(first.err());
    assertTrue(seed.find(), first.err());
    Ran again = Ran.loupe("generate", "ROMEO:", "-n", 30, "--seed", seed.group(1)).well();
    assertEquals(first.out(), again.out());
    assertNotEquals(first.out(), Ran.loupe("generate", "ROMEO:", "-n", 30).out(), "a new seed");
  }

  @Test
  void greedyIsTemperatureZeroAndNeedsNoSeed() {
    Ran greedy = Ran.loupe("generate", "ROMEO:", "-n", 20, "--greedy").well();
    assertEquals(
        greedy.out(),
        Ran.loupe("generate", "ROMEO:", "-n", 20, "--temperature", 0, "--seed", 9).out());
    assertTrue(greedy.err().contains("; greedy]"), greedy.err());
    assertTrue(greedy.out().startsWith("\nWhat,"), greedy.out());
  }

  @Test
  void everySamplingOptionReachesTheSampler() {
    JsonObject sampling =
        Ran.loupe(
                "generate",
                "x",
                "-n",
                1,
                "--json",
                "--temperature",
                0.5,
                "--top-k",
                7,
                "--top-p",
                0.25,
                "--min-p",
                0.125,
                "--repetition-penalty",
                1.5,
                "--seed",
                "-3")
            .well()
            .json()
            .getFirst()
            .getAsJsonObject("generation");
    assertEquals(
        "{\"temperature\":0.5,\"top_k\":7,\"top_p\":0.25,\"min_p\":0.125,"
            + "\"repetition_penalty\":1.5,"
            + "\"presence_penalty\":0.0,\"frequency_penalty\":0.0}",
        sampling.get("sampling").toString());
    assertEquals(-3, sampling.get("seed").getAsLong());
    assertEquals("sample", sampling.get("strategy").getAsString());
  }

  @Test
  void writesAHundredTokensOrWhatThereIsRoomFor() {
    JsonObject run = Ran.loupe("generate", "x", "--json").well().json().getFirst();
    assertEquals(101, run.getAsJsonArray("tokens").size());
    String ids = "5,".repeat(249) + "5";
    run = Ran.loupe("generate", "--ids", ids, "--json").well().json().getFirst();
    assertEquals(257, run.getAsJsonArray("tokens").size(), "the last takes no position");
  }

  @Test
  void jsonHasEveryFieldAndNoNaN() {
    Ran ran =
        Ran.loupe(
                "generate",
                "ROMEO:",
                "-n",
                6,
                "--greedy",
                "--json",
                "--logprobs",
                3,
                "--samples",
                2)
            .well();
    assertFalse(ran.out().contains("NaN"), "null, never NaN");
    assertEquals(2, ran.json().size(), "one object a line, one line a sample");
    JsonObject run = ran.json().getFirst();
    assertEquals(
        Set.of(
            "schema", "text", "prompt_len", "model", "generation", "tokens", "attention", "timing"),
        run.keySet());
    assertEquals("loupe/1", run.get("schema").getAsString());
    assertEquals(
        Set.of("source", "sha256", "n_layer", "n_head", "n_embd", "n_ctx", "activation", "dtype"),
        run.getAsJsonObject("model").keySet());
    assertTrue(run.getAsJsonObject("model").get("sha256").getAsString().matches("[0-9a-f]{64}"));
    JsonObject generation = run.getAsJsonObject("generation");
    assertTrue(
        generation
            .keySet()
            .containsAll(
                Set.of(
                    "strategy",
                    "sampling",
                    "seed",
                    "backend",
                    "device",
                    "finish_reason",
                    "cropped")));
    assertEquals("length", generation.get("finish_reason").getAsString());
    assertEquals(
        Set.of("load_ms", "prefill_ms", "prefill_tokens", "decode_ms", "decode_tokens"),
        run.getAsJsonObject("timing").keySet());
    assertTrue(run.get("attention").isJsonNull());
    int at = 0;
    for (JsonElement element : run.getAsJsonArray("tokens")) {
      JsonObject token = element.getAsJsonObject();
      assertEquals(
          Set.of(
              "id",
              "raw",
              "label",
              "bytes_hex",
              "char_span",
              "special",
              "generated",
              "logprob",
              "rank",
              "top"),
          token.keySet());
      assertEquals(at >= run.get("prompt_len").getAsInt(), token.get("generated").getAsBoolean());
      assertEquals(at == 0, token.get("logprob").isJsonNull(), "nothing precedes the first");
      assertEquals(at == 0 ? 0 : 3, token.getAsJsonArray("top").size());
      at++;
    }
    assertEquals(
        Ran.loupe("generate", "ROMEO:", "-n", 6, "--greedy").out(), run.get("text").getAsString());
  }

  @Test
  void severalSamplesFollowEachOther() {
    Ran ran = Ran.loupe("generate", "ROMEO:", "-n", 8, "--seed", 2, "--samples", 3).well();
    List<JsonObject> runs =
        Ran.loupe("generate", "ROMEO:", "-n", 8, "--seed", 2, "--samples", 3, "--json")
            .well()
            .json();
    StringBuilder expected = new StringBuilder();
    for (int i = 0; i < 3; i++) {
      String text = runs.get(i).get("text").getAsString();
      expected.append("--- ").append(i + 1).append(" of 3 ---\n").append(text);
      if (!text.endsWith("\n")) {
        expected.append('\n');
      }
    }
    assertEquals(expected.toString(), ran.out());
    assertTrue(ran.err().contains("wrote 24 in"), ran.err());
    assertEquals(
        runs.getFirst().get("text").getAsString(),
        Ran.loupe("generate", "ROMEO:", "-n", 8, "--seed", 2).out(),
        "the first is what one alone is");
  }

  @Test
  void endsBeforeAStopString() {
    String whole = Ran.loupe("generate", "ROMEO:", "-n", 40, "--greedy").well().out();
    String stop = whole.substring(20, 24);
    String cut = whole.substring(0, whole.indexOf(stop));
    Ran ran = Ran.loupe("generate", "ROMEO:", "-n", 40, "--greedy", "--stop", "@@", "--stop", stop);
    assertEquals(cut, ran.well().out());
  }

  @Test
  void slidesWhereAllowed() {
    Ran ran =
        Ran.loupe("generate", "ROMEO:", "-n", 300, "--greedy", "--overflow", "slide", "--json")
            .well();
    assertEquals(
        ran.json().getFirst().get("prompt_len").getAsInt() + 300,
        ran.json().getFirst().getAsJsonArray("tokens").size());
    assertTrue(ran.err().contains("[the context slid: the first "), ran.err());
  }

  @Test
  void anEmptyTextBeginsWithTheModelsOwnToken() {
    JsonObject run = Ran.reading("", "generate", "-n", 2, "--json").well().json().getFirst();
    assertEquals(1023, run.getAsJsonArray("tokens").get(0).getAsJsonObject().get("id").getAsInt());
    assertEquals(1, run.get("prompt_len").getAsInt());
  }

  @Test
  void specialTokensAreReadOnWishOnly() {
    String text = "a<|endoftext|>b";
    assertTrue(promptLength(text) > 5);
    assertEquals(3, promptLength(text, "--special"));
  }

  private static int promptLength(Object... args) {
    Object[] all = new Object[args.length + 4];
    System.arraycopy(new Object[] {"generate", "-n", 0, "--json"}, 0, all, 0, 4);
    System.arraycopy(args, 0, all, 4, args.length);
    return Ran.loupe(all).well().json().getFirst().get("prompt_len").getAsInt();
  }

  @Test
  void quietSaysNothing() {
    Ran ran = Ran.loupe("generate", "ROMEO:", "-n", 3, "-q").well();
    assertEquals("", ran.err());
    assertFalse(ran.out().isEmpty());
    Ran.loupe("generate", "ROMEO:", "-n", 1000, "-q").refused(ExitCode.BAD_USAGE, "room for 251");
  }
}
