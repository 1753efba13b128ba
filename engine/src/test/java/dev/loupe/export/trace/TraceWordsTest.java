package dev.loupe.export.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.export.TerminalText;
import dev.loupe.export.trace.Sentence.Basis;
import dev.loupe.generate.Prompt;
import dev.loupe.interpret.trace.Ablation;
import dev.loupe.interpret.trace.Circuit;
import dev.loupe.interpret.trace.Trace;
import dev.loupe.interpret.trace.TraceRequest;
import dev.loupe.model.Golden;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** What is said of a trace stands on its numbers, and causes on interventions alone. */
class TraceWordsTest {
  private static final Pattern CAUSE =
      Pattern.compile(
          "\\b(because|cause[sd]?|due to|therefore|thus|makes?|leads?|drives?|responsible|so that"
              + "|explains?|writes?|wrote|falls|rises|keeps?)\\b");

  private static final List<Trace> TRACES = new ArrayList<>();

  @BeforeAll
  static void trace() throws Exception {
    Options options = Options.defaults().backend(Backend.CPU).threads(2);
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL, options)) {
      String twice = "<|endoftext|>The priest is ready, sir.\nThe priest is ready, sir.\n";
      Prompt prompt = Prompt.text(twice).special(true);
      int[] other = prompt.tokens(loupe.tokenizer());
      other[4] = 555;
      TraceRequest request = TraceRequest.of(prompt).at(15);
      TRACES.add(loupe.trace(request));
      TRACES.add(loupe.trace(request.at(18)));
      TRACES.add(loupe.trace(request.against(TraceRequest.RUNNER_UP).patch(Prompt.ids(other))));
      TRACES.add(loupe.trace(request.mlps(true).keep(0.5).ablation(Ablation.ZERO)));
    }
    assertTrue(TRACES.stream().anyMatch(t -> t.circuit().isEmpty()));
    assertTrue(TRACES.stream().anyMatch(t -> t.circuit().isPresent()));
  }

  @AfterAll
  static void forget() {
    TRACES.clear();
  }

  /** All numbers that were measured by interventions. */
  private static Set<Double> measured(Trace trace) {
    Set<Double> all = new HashSet<>(List.of(trace.ablated(), trace.value() - trace.ablated()));
    trace.effects().forEach(e -> all.add(e.of(trace.ablation())));
    trace
        .circuit()
        .ifPresent(
            circuit -> {
              all.add(circuit.kept());
              all.add(circuit.edgesKept());
              circuit.edges().forEach(e -> all.add(e.effect()));
              circuit.edges().forEach(e -> all.add(Math.abs(e.effect())));
              circuit.places().forEach(p -> all.add(p.effect()));
            });
    return all;
  }

  @Test
  void causesStandOnInterventions() {
    Set<Basis> seen = new HashSet<>();
    for (Trace trace : TRACES) {
      String replaced =
          switch (trace.ablation()) {
            case ZERO -> "set to zero";
            case MEAN -> "at its mean";
            case PATCH -> "as in the second text";
          };
      for (Sentence sentence : TraceWords.of(trace)) {
        String text = sentence.text();
        seen.add(sentence.basis());
        boolean verdict = text.startsWith("No small circuit: ");
        switch (sentence.basis()) {
          case READING -> {
            assertEquals(trace.value(), sentence.number());
            assertFalse(CAUSE.matcher(text).find(), text);
          }
          case ATTENTION -> {
            assertTrue(text.contains("attention"), text);
            assertFalse(CAUSE.matcher(text).find(), text);
            assertTrue(
                trace.circuit().stream()
                    .flatMap(c -> c.places().stream())
                    .anyMatch(p -> p.weight() == sentence.number()),
                text);
          }
          case INTERVENTION -> {
            assertTrue(verdict || text.startsWith("With "), text);
            assertTrue(verdict || text.contains(replaced), text);
            assertTrue(measured(trace).contains(sentence.number()), text);
          }
        }
        if (!verdict) { // the number is in the sentence, rounded
          double number = Math.abs(sentence.number());
          assertTrue(
              text.contains(String.format(Locale.ROOT, "%.2f", number))
                  || text.contains(String.format(Locale.ROOT, "%.0f%%", 100 * number)),
              text + " " + number);
        }
        if (text.contains("falls by")) {
          assertTrue(sentence.number() <= 0, text);
        }
      }
    }
    assertEquals(Set.of(Basis.values()), seen);
  }

  @Test
  void everyMemberAndEdgeIsSaid() {
    for (Trace trace : TRACES) {
      List<String> texts = TraceWords.of(trace).stream().map(Sentence::text).toList();
      for (Circuit circuit : trace.circuit().stream().toList()) {
        circuit
            .members()
            .forEach(
                part ->
                    assertTrue(
                        texts.stream().anyMatch(t -> t.startsWith("With " + part.label() + " ")),
                        part.label()));
        long links =
            texts.stream()
                .filter(
                    t ->
                        t.matches(
                            ".*( in the (queries|keys|values) of | in what | on the path ).*alone.*"))
                .count();
        assertEquals(TraceWords.named(circuit).size(), links);
        int others = circuit.edges().size() - (int) links;
        assertEquals(
            others > 0,
            texts.stream().anyMatch(t -> t.contains(" in one of %d other link".formatted(others))));
      }
    }
  }

  @Test
  void noLineIsTooLong() {
    for (int columns : new int[] {30, 80}) {
      for (String line : TraceReport.text(TRACES.getFirst(), columns).lines().toList()) {
        assertTrue(TerminalText.width(line) <= columns, line);
      }
    }
  }
}
