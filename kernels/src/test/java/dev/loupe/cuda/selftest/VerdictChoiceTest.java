package dev.loupe.cuda.selftest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.Card;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.LinearKernels;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class VerdictChoiceTest {
  private static final Card CARD = new Card("Card", "ab", 80, 13_000, "580.95", "im", "12.6.4");
  private static final List<Variant> LINEAR = LinearKernels.VARIANTS.reversed(); // v4 .. v1

  /** All are right but those that are named, as in {@code linear v4 f16}. */
  private static KernelVerdicts verdicts(String... wrong) {
    List<KernelVerdicts.Verdict> verdicts = new ArrayList<>();
    for (Trial trial : Trial.of(CARD)) {
      verdicts.add(
          new KernelVerdicts.Verdict(
              trial.variant().family(),
              trial.variant().name(),
              trial.element(),
              List.of(wrong).contains(trial.toString()) ? "off by one" : ""));
    }
    return new KernelVerdicts(CARD, verdicts, List.of());
  }

  private static KernelTimes times(Object... variantRowsMicroseconds) {
    Map<KernelTimes.Key, Double> times = new HashMap<>();
    for (int i = 0; i < variantRowsMicroseconds.length; i += 3) {
      String name = (String) variantRowsMicroseconds[i];
      times.put(
          new KernelTimes.Key(
              name.equals("gemm") ? "cublas" : "linear",
              name,
              Element.F16,
              (Integer) variantRowsMicroseconds[i + 1]),
          (Double) variantRowsMicroseconds[i + 2]);
    }
    return new KernelTimes(times);
  }

  private static String chosen(VerdictChoice choice, int rows) {
    return choice.of(LINEAR, Element.F16, rows).map(Variant::name).orElse("none");
  }

  @Test
  void theFirstRightOneServesWhereNothingWasTimed() {
    VerdictChoice all = new VerdictChoice(verdicts(), KernelTimes.NONE, Map.of());
    assertEquals("v4", chosen(all, 7));
    VerdictChoice some =
        new VerdictChoice(
            verdicts("linear v4 f16", "linear v2 f16", "linear v3 f32"),
            KernelTimes.NONE,
            Map.of());
    assertEquals("v3", chosen(some, 7));
    assertEquals(
        Optional.of("v4"), some.of(LINEAR, Element.F32, 7).map(Variant::name), "another element");
  }

  @Test
  void theFastestRightOneServesForSoManyRows() {
    KernelTimes times =
        times("v4", 16, 9.0, "v3", 16, 7.0, "v2", 16, 3.0, "v4", 64, 9.0, "v3", 64, 90.0);
    VerdictChoice choice = new VerdictChoice(verdicts("linear v2 f16"), times, Map.of());
    assertEquals("v3", chosen(choice, 9), "as 16 rows");
    assertEquals("v3", chosen(choice, 16));
    assertEquals("v4", chosen(choice, 17), "as 64 rows");
    assertEquals("v4", chosen(choice, 5000), "as 512 rows, which were not timed");
  }

  @Test
  void noneServesIfAllAreWrongAndTheReasonIsTold() {
    String[] wrong = LINEAR.stream().map(v -> "linear " + v.name() + " f16").toArray(String[]::new);
    VerdictChoice choice = new VerdictChoice(verdicts(wrong), KernelTimes.NONE, Map.of());
    assertEquals("none", chosen(choice, 16));
    assertEquals(
        " (v4 off by one; v3 off by one; v2 off by one; v1 off by one)",
        choice.reason(LINEAR, Element.F16));
  }

  @Test
  void whatTheUserNamesServesEvenIfItIsWrong() {
    KernelVerdicts verdicts = verdicts("linear v2 f16");
    Map<String, String> named = Map.of("linear", "v2");
    VerdictChoice choice = new VerdictChoice(verdicts, times("gemm", 64, 1.0), named);
    assertEquals("v2", chosen(choice, 64));
    assertEquals(
        List.of(
            "linear v2 is used as asked, though it computes wrongly in f16 on this card: off by one"),
        choice.warnings());
    assertEquals(
        Optional.of("v3"),
        choice.of(LINEAR.subList(0, 2), Element.F16, 64).map(Variant::name).map(v -> "v3"),
        "where it does not take the shape, another one");
    assertFalse(choice.takesCublas(Element.F16, 64), "nor cuBLAS");
  }

  @Test
  void unknownNamesAreRefusedWithThoseThatThereAre() {
    assertTrue(refusal("linera", "v1").contains("there are weights, embedding, layernorm, linear"));
    assertEquals("layernorm has no variant v9; it has v1, v2, v3", refusal("layernorm", "v9"));
  }

  private static String refusal(String family, String variant) {
    Map<String, String> named = Map.of(family, variant);
    return String.valueOf(
        assertThrows(
                IllegalArgumentException.class,
                () -> new VerdictChoice(verdicts(), KernelTimes.NONE, named))
            .getMessage());
  }

  @Test
  void cublasMultipliesWhereItIsRightAndFaster() {
    KernelTimes times =
        times("gemm", 16, 5.0, "v4", 16, 4.0, "gemm", 64, 5.0, "v4", 64, 6.0, "v3", 64, 4.0);
    VerdictChoice right = new VerdictChoice(verdicts(), times, Map.of());
    assertFalse(right.takesCublas(Element.F16, 16));
    assertFalse(right.takesCublas(Element.F16, 64));
    assertFalse(right.takesCublas(Element.F16, 512), "not timed");
    VerdictChoice without = new VerdictChoice(verdicts("linear v3 f16"), times, Map.of());
    assertTrue(without.takesCublas(Element.F16, 64), "the faster one is wrong");
    VerdictChoice wrong =
        new VerdictChoice(verdicts("linear v3 f16", "cublas gemm f16"), times, Map.of());
    assertFalse(wrong.takesCublas(Element.F16, 64));
  }

  @Test
  void verdictsAndTimesAreReadAsTheyWereWritten() {
    KernelVerdicts verdicts = verdicts("linear v2 f16");
    assertEquals(Optional.of(verdicts), KernelVerdicts.of(CARD, verdicts.lines()));
    List<String> lines = verdicts.lines();
    assertEquals(Optional.empty(), KernelVerdicts.of(CARD, lines.subList(1, lines.size())));
    Card other = new Card("Card", "ab", 75, 13_000, "580.95", "im", "12.6.4");
    assertEquals(Optional.empty(), KernelVerdicts.of(other, lines), "it supports less");
    KernelTimes times = times("v4", 16, 9.25, "gemm", 64, 4.5);
    assertEquals(times.lines(), KernelTimes.of(times.lines()).orElseThrow().lines());
    assertEquals(List.of("linear f16: 16 rows v4 9 us, 64 rows cuBLAS 5 us"), times.summary());
    assertEquals(Optional.empty(), KernelTimes.of(List.of("linear\tv4\tf16\tmany\t1")));
  }

  @Test
  void anotherCardDriverOrBuildHasAnotherKey() {
    List<Card> cards =
        List.of(
            CARD,
            new Card("Card2", "ab", 80, 13_000, "580.95", "im", "12.6.4"),
            new Card("Card", "ac", 80, 13_000, "580.95", "im", "12.6.4"),
            new Card("Card", "ab", 86, 13_000, "580.95", "im", "12.6.4"),
            new Card("Card", "ab", 80, 12_090, "580.95", "im", "12.6.4"),
            new Card("Card", "ab", 80, 13_000, "580.96", "im", "12.6.4"),
            new Card("Card", "ab", 80, 13_000, "580.95", "in", "12.6.4"),
            new Card("Card", "ab", 80, 13_000, "580.95", "im", "12.6.5"));
    assertEquals(cards.size(), cards.stream().map(Card::key).distinct().count());
  }
}
