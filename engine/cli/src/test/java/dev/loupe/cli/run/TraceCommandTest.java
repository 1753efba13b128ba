package dev.loupe.cli.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** {@code loupe trace}. */
class TraceCommandTest {
  private static final String TWICE =
      "<|endoftext|>The priest is ready, sir.\nThe priest is ready, sir.\n";

  private static Ran trace(Object... more) {
    List<Object> all = new ArrayList<>(List.of("trace", TWICE, "--special", "--backend", "cpu"));
    all.addAll(List.of(more));
    return Ran.loupe(all.toArray());
  }

  @Test
  void theInductionHeadsReadThePreviousTokenHead() {
    JsonObject json = trace("--at", 15, "--json", "-q").well().json().getFirst();
    assertEquals("loupe-trace/1", json.get("schema").getAsString());
    JsonObject quantity = json.getAsJsonObject("quantity");
    assertEquals("logprob", quantity.get("kind").getAsString());
    assertEquals("ri", quantity.getAsJsonObject("token").get("label").getAsString());
    assertEquals(24, json.getAsJsonArray("nodes").size());
    List<String> kept = new ArrayList<>();
    for (JsonElement each : json.getAsJsonArray("edges")) {
      JsonObject edge = each.getAsJsonObject();
      if (edge.get("kept").getAsBoolean() && edge.get("effect").getAsDouble() < -0.05) {
        kept.add(
            "%s %s %s"
                .formatted(
                    edge.get("from").getAsString(),
                    edge.get("via").getAsString(),
                    edge.get("to").getAsString()));
      }
    }
    for (int head = 0; head < 3; head++) {
      assertTrue(kept.contains("4.0 k 5." + head), kept.toString());
      assertTrue(kept.contains("5.%d logit logit".formatted(head)), kept.toString());
    }
    JsonObject faithfulness = json.getAsJsonObject("faithfulness");
    assertTrue(faithfulness.get("kept").getAsDouble() > 0.6, faithfulness.toString());
    assertTrue(json.getAsJsonArray("words").size() > 10);
  }

  @Test
  void wordsForPeople() {
    Ran ran = trace("--at", 15).well();
    assertTrue(ran.out().startsWith("After token 15, ·p, the log-probability of ri is "));
    assertTrue(ran.out().contains("With 4.0 at its mean in the keys of 5.1 alone, it falls by "));
    assertTrue(ran.err().contains(" readings of the text]"), ran.err());
    Ran none = Ran.loupe("trace", "zq xv kj wp fh gd bn mt", "-q", "--backend", "cpu").well();
    assertEquals("", none.err());
    assertTrue(none.out().contains("\nNo small circuit: "), none.out());
  }

  @Test
  void aPageAndADrawing() {
    String page = trace("--at", 15, "--html", "-q").well().out();
    assertTrue(page.startsWith("<!doctype html>"), page);
    assertTrue(page.contains("With 4.0 at its mean in the keys of 5.1 alone, it falls by "), page);
    assertFalse(page.contains("<script"), page);
    String drawing = trace("--at", 15, "--svg", "-q").well().out();
    assertTrue(drawing.startsWith("<svg xmlns=") && drawing.contains("4.0 in the keys of 5.1"));
    Ran none = Ran.loupe("trace", "zq xv kj wp fh gd bn mt", "-q", "--backend", "cpu", "--svg");
    none.refused(ExitCode.BAD_USAGE, "nothing to draw: no small circuit: ");
  }

  @Test
  void patchesFromASecondText() {
    JsonObject json =
        Ran.loupe(
                "trace",
                "--ids",
                "1,2,3,4,1,2",
                "--patch",
                "1,9,3,4,1,9",
                "--json",
                "-q",
                "--against",
                "runner-up")
            .well()
            .json()
            .getFirst();
    assertEquals("patched", json.get("ablation").getAsString());
    assertEquals("logit_difference", json.getAsJsonObject("quantity").get("kind").getAsString());
    JsonObject node = json.getAsJsonArray("nodes").get(0).getAsJsonObject();
    assertTrue(node.getAsJsonObject("effect").get("patched").isJsonPrimitive(), node.toString());
    Ran.loupe("trace", "To be", "--patch", "To me", "-q", "--mlps").well();
  }

  @Test
  void numbersBehindARow() {
    Ran text = trace("--row", "4.0", "--at", 3, "-q").well();
    assertTrue(text.out().startsWith("Head 4.0, row of token 3, ri: "), text.out());
    assertTrue(text.out().contains("Masked: tokens 4 to 26."), text.out());
    List<String> csv =
        trace("--row", "4.0", "--at", 3, "-q", "--csv").well().out().lines().toList();
    assertEquals(5, csv.size());
    assertTrue(csv.getFirst().startsWith("position,id,score,weight,"), csv.getFirst());
    assertEquals(7 + 64, csv.get(1).split(",", -1).length);
    JsonObject json = trace("--row", "4.0", "--at", 3, "-q", "--json").well().json().getFirst();
    assertEquals(4, json.getAsJsonArray("keys").size());
  }

  @Test
  void gridsOfPatching() {
    Object[] texts = {"trace", "--ids", "1,2,3,4", "--patch", "1,9,3,4", "-q", "--grid"};
    List<Object> all = new ArrayList<>(List.of(texts));
    all.addAll(List.of("heads", "--csv"));
    assertEquals(1 + 18 * 4, Ran.loupe(all.toArray()).well().out().lines().count());
    all.set(all.size() - 2, "layers");
    assertEquals(1 + 18 * 4, Ran.loupe(all.toArray()).well().out().lines().count());
    all.set(all.size() - 1, "--json");
    all.set(all.size() - 2, "4.1");
    assertEquals(
        4, Ran.loupe(all.toArray()).well().json().getFirst().getAsJsonArray("rows").size());
    all.removeLast();
    assertEquals(2 + 16, Ran.loupe(all.toArray()).well().out().lines().count());
    Ran.loupe("trace", "a", "--grid", "heads").refused(ExitCode.BAD_USAGE, "--patch");
    all.set(all.size() - 1, "best");
    Ran.loupe(all.toArray()).refused(ExitCode.BAD_USAGE, "layers, heads", "best");
    all.set(all.size() - 1, "9.0");
    Ran.loupe(all.toArray()).refused(ExitCode.BAD_USAGE, "no head 9.0");
  }

  @Test
  void whatIsWrongIsSaid() {
    trace("--csv").refused(ExitCode.BAD_USAGE, "--row and --grid");
    trace("--csv", "--json", "--row", "1.1")
        .refused(ExitCode.BAD_USAGE, "--json, --csv, --html and --svg");
    trace("--row", "1.1", "--against", "3").refused(ExitCode.BAD_USAGE, "--against");
    trace("--row", "9.1").refused(ExitCode.BAD_USAGE, "no head 9.1");
    trace("--row", "x").refused(ExitCode.BAD_USAGE, "--row x");
    trace("--at", 99).refused(ExitCode.BAD_USAGE, "no token 99", "0..26");
    trace("--at", -2).refused(ExitCode.BAD_USAGE, "--at -2");
    trace("--target", 60000).refused(ExitCode.BAD_USAGE, "60000");
    trace("--against", "next").refused(ExitCode.BAD_USAGE, "--against next", "runner-up");
    trace("--patch", "short").refused(ExitCode.BAD_USAGE, "second text", "27");
    trace("--patch", TWICE).refused(ExitCode.BAD_USAGE, "both texts are the same");
    trace("--ablate-to", "patch").refused(ExitCode.BAD_USAGE, "--patch");
    trace("--ablate-to", "never").refused(ExitCode.BAD_USAGE, "zero, mean or patch");
    trace("--keep", 1.5).refused(ExitCode.BAD_USAGE, "1.5");
    trace("--most", 0).refused(ExitCode.BAD_USAGE, "0 parts");
    Ran.loupe("trace", "--ids", "1,2", "--patch", "a,b").refused(ExitCode.BAD_USAGE, "a,b");
  }
}
