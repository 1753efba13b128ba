package dev.loupe.cli.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.export.LensReport;
import dev.loupe.generate.Prompt;
import dev.loupe.interpret.Lens;
import dev.loupe.model.Golden;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** {@code loupe lens}. */
class LensCommandTest {
  @Test
  void layersAndPartsForPeople() {
    Ran ran = Ran.loupe("lens", "ROMEO:", "-q", "--backend", "cpu").well();
    assertEquals("", ran.err());
    assertTrue(ran.out().startsWith("After :, token 5, \\n is the likeliest.\n"), ran.out());
    assertEquals(7, ran.out().lines().filter(l -> l.matches(" {4}[-0-5] .*%.*")).count());
    assertTrue(ran.out().lines().anyMatch(l -> l.matches("heads +[+-]\\d.*4\\.\\d [+-].*")));
    Ran known = Ran.loupe("lens", "ROMEO:", "--at", "2", "-q", "--backend", "cpu").well();
    assertTrue(
        known.out().startsWith("After M, token 2, E is what follows in the text"), known.out());
  }

  @Test
  void jsonForPrograms() {
    JsonObject json =
        Ran.loupe("lens", "ROMEO:", "--json", "--top", 2, "--target", 13, "--backend", "cpu")
            .well()
            .json()
            .getFirst();
    assertEquals("loupe-lens/1", json.get("schema").getAsString());
    assertEquals(13, json.getAsJsonObject("target").get("id").getAsInt());
    assertEquals(7, json.getAsJsonArray("layers").size());
    JsonObject last = json.getAsJsonArray("layers").get(6).getAsJsonObject();
    assertEquals(2, last.getAsJsonArray("top").size());
    JsonObject adds = json.getAsJsonObject("adds");
    double sum = 0;
    for (String part : new String[] {"token", "position", "ln_f_bias"}) {
      sum += adds.get(part).getAsDouble();
    }
    for (int layer = 0; layer < 6; layer++) {
      sum += adds.getAsJsonArray("attention_biases").get(layer).getAsDouble();
      sum += adds.getAsJsonArray("mlps").get(layer).getAsDouble();
      for (var head : adds.getAsJsonArray("heads").get(layer).getAsJsonArray()) {
        sum += head.getAsDouble();
      }
    }
    assertEquals(json.getAsJsonObject("target").get("logit").getAsDouble(), sum, 1e-4);
  }

  @ParameterizedTest
  @ValueSource(ints = {20, 40, 80, 120})
  void noLineIsLonger(int columns) throws Exception {
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL)) {
      Lens lens = loupe.lens(Prompt.text("To be, or not to be: that is"), -1, -1, 8);
      String text = LensReport.text(lens, columns);
      assertTrue(text.lines().allMatch(line -> line.length() <= columns), text);
      assertTrue(text.lines().count() >= 18, text);
    }
  }

  @Test
  void whatCantBeIsSaid() {
    Ran.loupe("lens", "ROMEO:", "--at", "99").refused(ExitCode.BAD_USAGE, "no token 99", "0..5");
    Ran.loupe("lens", "ROMEO:", "--at", "-2").refused(ExitCode.BAD_USAGE, "--at -2");
    Ran.loupe("lens", "ROMEO:", "--target", "60000")
        .refused(ExitCode.BAD_USAGE, "60000", "0..1023");
    Ran.loupe("lens", "ROMEO:", "--top", "-1").refused(ExitCode.BAD_USAGE, "-1");
    Ran.loupe("lens", "a", "--ids", "1").refused(ExitCode.BAD_USAGE, "not several");
    Ran.loupe("lens", "a", "-m", "/none").refused(ExitCode.BAD_INPUT, "/none");
  }
}
