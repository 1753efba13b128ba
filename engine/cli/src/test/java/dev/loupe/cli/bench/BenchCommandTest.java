package dev.loupe.cli.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.EmulatedGpu;
import dev.loupe.OnGpu;
import dev.loupe.TinyModel;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** {@code loupe bench}. */
class BenchCommandTest {
  @TempDir Path folder;

  @Test
  void decodeOfTheDemoModel() {
    Ran ran = Ran.loupe("bench", "decode", "--runs", 1, "-n", 10, "--backend", "cpu").well();
    assertEquals("", ran.err());
    assertTrue(ran.out().contains("tokens/s") && ran.out().contains("GB/s"), ran.out());
    assertTrue(ran.out().contains("1 of 1 run "), ran.out());
  }

  @Test
  void textsAtOnce() throws Exception {
    Path model = TinyModel.in(folder).folder();
    Object[] args = {
      "bench", "decode", "--runs", 1, "-n", 5, "--texts", 3, "-m", model, "--backend", "cpu"
    };
    String text = Ran.loupe(args).well().out();
    assertTrue(text.contains(", then 5 more in each of 3 texts at once; 1 of 1 run"), text);
    assertTrue(text.contains("ms a step"), text);
    Object[] more = Arrays.copyOf(args, args.length + 1);
    more[args.length] = "--json";
    JsonObject json = Ran.loupe(more).well().json().getFirst();
    assertEquals(3, json.getAsJsonObject("settings").get("texts").getAsInt());
    double ms = json.getAsJsonArray("ms").get(0).getAsDouble();
    double speed = json.getAsJsonObject("tokens_per_second").get("median").getAsDouble();
    assertEquals(3000 / ms, speed, 1e-6 * speed);
    Ran.loupe("bench", "decode", "--texts", 0, "-m", model).refused(2, "0 texts at once");
  }

  @Test
  void prefillAsJson() {
    Ran ran =
        Ran.loupe(
                "bench",
                "prefill",
                "--runs",
                2,
                "--prompt-tokens",
                40,
                "--attention",
                "all",
                "--threads",
                1,
                "--backend",
                "cpu",
                "--json")
            .well();
    JsonObject json = ran.json().getFirst();
    assertEquals(2, json.getAsJsonArray("ms").size());
    assertEquals("prefill", json.get("phase").getAsString());
    assertEquals("all", json.getAsJsonObject("settings").get("attention").getAsString());
    assertEquals(1, json.getAsJsonObject("machine").get("threads").getAsInt());
    assertTrue(json.get("percent_of_fma").getAsDouble() > 0, ran.out());
  }

  @Test
  void mapsInTurns() throws Exception {
    Path model = TinyModel.in(folder).folder();
    Object[] args = {
      "bench",
      "decode",
      "-m",
      model,
      "--runs",
      1,
      "-n",
      3,
      "--attention",
      "all,none,one",
      "--backend",
      "cpu",
      "-q"
    };
    Ran text = Ran.loupe(args).well();
    assertTrue(text.out().contains("3 of 3 runs after 6 to warm up, in turns"), text.out());
    assertEquals(2, text.out().split("times none", -1).length - 1, text.out());
    assertTrue(text.out().contains("KV cache"), text.out());
    Object[] more = Stream.concat(Stream.of(args), Stream.of("--json")).toArray();
    JsonObject json = Ran.loupe(more).well().json().getFirst();
    assertEquals("loupe-bench/2", json.get("schema").getAsString());
    for (JsonElement each : json.getAsJsonArray("measured")) {
      assertEquals(1, each.getAsJsonObject().getAsJsonArray("ms").size());
      assertTrue(each.getAsJsonObject().get("percent_of_fma").getAsDouble() > 0);
    }
    Ran.loupe("bench", "prefill", "--attention", "none,some")
        .refused(ExitCode.BAD_USAGE, "'some' is not none, one or all");
  }

  /** Defaults are 512 tokens, or 64 and 128; the tiny model reads 128. */
  @Test
  void defaultsFitASmallContext() throws Exception {
    Path model = TinyModel.in(folder).folder();
    JsonObject decode = settings("decode", model);
    assertEquals(32, decode.get("prompt_tokens").getAsInt());
    assertEquals(95, decode.get("tokens").getAsInt());
    assertEquals(128, settings("prefill", model).get("prompt_tokens").getAsInt());
  }

  private static JsonObject settings(String phase, Path model) {
    return Ran.loupe("bench", phase, "-m", model, "--runs", 1, "--json", "-q", "--backend", "cpu")
        .well()
        .json()
        .getFirst()
        .getAsJsonObject("settings");
  }

  /** A model that always ends its text, by a last layer norm that points at the token for it. */
  @Test
  void aModelThatWritesNothing() throws Exception {
    TinyModel model = TinyModel.in(folder);
    try (var checkpoint = dev.loupe.weights.Checkpoint.open(model.folder())) {
      int end = checkpoint.config().eosTokenIds().getFirst();
      int width = checkpoint.config().nEmbd();
      float[] row = new float[width];
      checkpoint.tensor("wte.weight").read((long) end * width, row, 0, width);
      for (int i = 0; i < width; i++) {
        model.poke("ln_f.bias", i, 1e4f * row[i]);
      }
    }
    Ran.loupe("bench", "decode", "-m", model.folder(), "--runs", 1, "--backend", "cpu")
        .refused(ExitCode.BAD_USAGE, "ends its text before 96 tokens", "smaller -n");
    Ran.loupe("bench", "prefill", "-m", model.folder(), "--runs", 1, "--backend", "cpu").well();
  }

  @OnGpu
  @Test
  void timesOfAnEmulatedCardAreNoSpeed() throws Exception {
    EmulatedGpu.require();
    EmulatedGpu.reset();
    Path model = TinyModel.in(folder).folder();
    for (int texts : new int[] {1, 3}) {
      Object[] args = {
        "bench",
        "decode",
        "-m",
        model,
        "--backend",
        "cuda",
        "--runs",
        1,
        "-n",
        3,
        "--dtype",
        "f16",
        "--texts",
        texts,
        "--json"
      };
      JsonObject json = Ran.loupe(args).well().json().getFirst();
      assertTrue(json.getAsJsonObject("model").get("emulated").getAsBoolean());
      assertEquals(1, json.getAsJsonArray("ms").size());
      assertTrue(json.get("tokens_per_second").isJsonNull());
      assertTrue(json.get("ceilings").isJsonNull());
      assertTrue(json.getAsJsonObject("memory").get("card_bytes").getAsLong() > 0);
      assertTrue(json.get("launches_per_step").getAsLong() > 0);
    }
  }
}
