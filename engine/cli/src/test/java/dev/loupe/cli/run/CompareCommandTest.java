package dev.loupe.cli.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.export.ComparisonReport;
import dev.loupe.generate.ReadRequest;
import dev.loupe.interpret.Comparison;
import dev.loupe.model.Golden;
import dev.loupe.model.Interventions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** {@code loupe compare}, and changed heads in the other commands. */
class CompareCommandTest {
  private static final String TWICE =
      "<|endoftext|>The priest is ready, sir.\nThe priest is ready, sir.\n";

  private static Ran compare(Object... args) {
    Object[] all = new Object[args.length + 4];
    all[0] = "compare";
    System.arraycopy(args, 0, all, 1, args.length);
    all[args.length + 1] = "-q";
    all[args.length + 2] = "--backend";
    all[args.length + 3] = "cpu";
    return Ran.loupe(all);
  }

  @Test
  void aTableForPeople() {
    Ran ran = compare(TWICE, "--special", "--ablate", "4.0", "--top", "6").well();
    assertEquals("", ran.err());
    assertTrue(ran.out().startsWith("With head 4.0 left out, on 27 tokens:\n"), ran.out());
    assertTrue(ran.out().contains("\n6 tokens of 26 whose"), ran.out());
    assertTrue(ran.out().contains("\n  5.2 "), ran.out()); // the first that attends elsewhere
    Ran all = compare("To be", "--ablate", "4.0,5.1", "--ablate-to", "mean").well();
    assertTrue(all.out().contains("heads 4.0, 5.1 at the mean"), all.out());
    assertTrue(all.out().contains("Each token, given those before it:"), all.out());
    Ran last = compare("To be", "--scale", "5.0=0").well();
    assertTrue(last.out().contains("With head 5.0 times 0"), last.out());
    assertTrue(last.out().contains("No head attends elsewhere."), last.out());
    Ran cut = compare("To be", "--n-head", "6").well();
    assertTrue(cut.out().contains("cut into 6 heads") && !cut.out().contains("elsewhere"));
  }

  @Test
  void jsonForPrograms() {
    JsonObject json = compare("To be or", "--ablate", "0.1", "--json").well().json().getFirst();
    assertEquals("loupe-compare/1", json.get("schema").getAsString());
    assertEquals("head 0.1 left out", json.get("changes").getAsString());
    JsonObject first = json.getAsJsonArray("tokens").get(0).getAsJsonObject();
    assertTrue(first.get("logprob_after").isJsonNull());
    assertTrue(first.get("divergence_after_it").getAsDouble() > 0);
    assertEquals(6, json.getAsJsonArray("map_variation").size());
  }

  @ParameterizedTest
  @ValueSource(ints = {20, 40, 80, 120})
  void noLineIsLonger(int columns) throws Exception {
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL)) {
      Comparison comparison =
          loupe.compare(
              ReadRequest.text("To be, or not to be").interventions(Interventions.NONE.mean(4, 0)));
      String text = ComparisonReport.text(comparison, "head 4.0 at the mean", 20, columns);
      assertTrue(text.lines().allMatch(line -> line.length() <= columns), text);
    }
  }

  @Test
  void whatIsWrittenWithoutAHead() {
    Object[] args = {"generate", "ROMEO:", "-n", 12, "--greedy", "-q", "--backend", "cpu"};
    Ran plain = Ran.loupe(args).well();
    Object[] more = java.util.Arrays.copyOf(args, args.length + 4);
    more[args.length] = "--ablate";
    more[args.length + 1] = "4.0,4.1,3.1";
    more[args.length + 2] = "--ablate-to";
    more[args.length + 3] = "Mean";
    assertNotEquals(plain.out(), Ran.loupe(more).well().out());
    Object[] attention = {"attention", "To be or", "--layers", 5, "--heads", 0, "-q"};
    Object[] changed = java.util.Arrays.copyOf(attention, attention.length + 2);
    changed[attention.length] = "--ablate";
    changed[attention.length + 1] = "4.0,1.0,3.0,2.0,0.0";
    assertNotEquals(Ran.loupe(attention).well().out(), Ran.loupe(changed).well().out());
  }

  @Test
  void whatCantBeIsSaid() {
    compare("a").refused(ExitCode.BAD_USAGE, "nothing is changed", "--ablate 4.0");
    compare("a", "--ablate", "4").refused(ExitCode.BAD_USAGE, "--ablate 4", "layer.head");
    compare("a", "--ablate", "4.-1").refused(ExitCode.BAD_USAGE, "--ablate 4.-1");
    compare("a", "--ablate", "9.0").refused(ExitCode.BAD_USAGE, "no head 9.0", "0..5", "0..2");
    compare("a", "--ablate", "1.0,1.0").refused(ExitCode.BAD_USAGE, "1.0 is changed twice");
    compare("a", "--ablate", "1.0", "--ablate-to", "x").refused(ExitCode.BAD_USAGE, "zero or mean");
    compare("a", "--scale", "1.0").refused(ExitCode.BAD_USAGE, "--scale 1.0", "4.0=0.5");
    compare("a", "--scale", "1.0=x").refused(ExitCode.BAD_USAGE, "'x' is no number");
    compare("a", "--scale", "1.0=NaN").refused(ExitCode.BAD_USAGE, "not a number");
    compare("a", "--n-head", "5").refused(ExitCode.BAD_USAGE, "192", "5 heads");
    compare("a", "--n-head", "-1").refused(ExitCode.BAD_USAGE, "-1 heads");
    compare("a", "--ablate", "1.0", "--top", "-1").refused(ExitCode.BAD_USAGE, "--top -1");
    Ran.loupe("attention", "a", "--stats", "x.npz", "--value-norms", "--ablate", "1.0")
        .refused(ExitCode.BAD_USAGE, "without changing heads");
  }
}
