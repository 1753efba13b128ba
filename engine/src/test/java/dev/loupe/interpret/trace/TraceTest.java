package dev.loupe.interpret.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.generate.Prompt;
import dev.loupe.interpret.trace.Circuit.Edge;
import dev.loupe.interpret.trace.Circuit.Place;
import dev.loupe.interpret.trace.Trace.Effect;
import dev.loupe.interpret.trace.TraceListener.Phase;
import dev.loupe.model.Golden;
import dev.loupe.weights.Checkpoint;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

class TraceTest {
  private static final String TWICE =
      "<|endoftext|>The priest is ready, sir.\nThe priest is ready, sir.\n";
  private static final double NEAR = 5e-4; // nats: f32 against f64

  private static Loupe loupe;
  private static Checkpoint checkpoint;

  @TempDir Path folder;

  @BeforeAll
  static void open() throws Exception {
    loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU).threads(2));
    checkpoint = Checkpoint.open(Golden.DEMO_MODEL);
  }

  @AfterAll
  static void close() throws Exception {
    loupe.close();
    checkpoint.close();
  }

  private static TraceRequest twice() {
    return TraceRequest.of(Prompt.text(TWICE).special(true)).at(15);
  }

  private static int[] ids(String text, int count) {
    int[] all = Prompt.text(text).special(true).tokens(loupe.tokenizer());
    return Arrays.copyOf(all, count);
  }

  @Test
  void effectsAreThoseOfTheTextbook() {
    int[] other = ids(TWICE, 16);
    other[4] = 555;
    for (int against : new int[] {-2, TraceRequest.RUNNER_UP}) {
      TraceRequest request = twice().patch(Prompt.ids(other));
      Trace trace = loupe.trace(against == -2 ? request : request.against(against));
      Textbook book = new Textbook(checkpoint, ids(TWICE, 16), other, trace.quantity());
      assertEquals(book.value(), trace.value(), NEAR);
      assertEquals(24, trace.effects().size());
      for (Effect effect : trace.effects()) {
        String name = effect.part().label();
        assertEquals(book.effect(effect.part(), Ablation.ZERO), effect.zero(), NEAR, name);
        assertEquals(book.effect(effect.part(), Ablation.MEAN), effect.mean(), NEAR, name);
        assertEquals(book.effect(effect.part(), Ablation.PATCH), effect.patched(), NEAR, name);
        assertEquals(book.direct(effect.part(), Ablation.PATCH), effect.direct(), NEAR, name);
      }
    }
  }

  @Test
  void edgesAreThoseOfTheTextbook() {
    TraceRequest request = twice().mlps(true).keep(0.8).most(12);
    Trace trace = loupe.trace(request);
    Circuit circuit = trace.circuit().orElseThrow(() -> new AssertionError(trace.verdict()));
    int[] ids = ids(TWICE, 16);
    Textbook book = new Textbook(checkpoint, ids, ids, trace.quantity());
    int toMlps = 0;
    for (Edge edge : circuit.measured()) {
      assertEquals(book.path(edge.link(), Ablation.MEAN), edge.effect(), NEAR, edge.toString());
      toMlps += edge.via() == Via.MLP ? 1 : 0;
    }
    assertTrue(toMlps > 0, circuit.toString());
    assertEquals(book.alone(circuit.members(), Ablation.MEAN), circuit.value(), NEAR);
    assertEquals(book.alone(List.of(), Ablation.MEAN), trace.ablated(), NEAR);
    double share = (circuit.value() - trace.ablated()) / (trace.value() - trace.ablated());
    assertEquals(share, circuit.kept(), 1e-9);
    // the parts with all links between them are the parts alone, another way round
    List<Circuit.Link> all = circuit.measured().stream().map(Edge::link).toList();
    assertEquals(circuit.kept(), loupe.kept(request, all), 1e-3);
    for (Place place : circuit.places()) {
      assertEquals(book.effectAt(place.part(), place.position()), place.effect(), NEAR);
    }
  }

  @Test
  void thePreviousTokenHeadFeedsTheInductionHeads() {
    Trace trace = loupe.trace(twice());
    assertEquals("ri", trace.quantity().label());
    Circuit circuit = trace.circuit().orElseThrow(() -> new AssertionError(trace.verdict()));
    Part previous = new Part(4, 0);
    for (int head = 0; head < 3; head++) {
      Part induction = new Part(5, head);
      Circuit.Link link = new Circuit.Link(previous, Optional.of(induction), Via.KEY);
      Edge edge =
          circuit.edges().stream().filter(e -> e.link().equals(link)).findFirst().orElseThrow();
      assertTrue(edge.effect() < -0.05, edge.toString());
      // each speaks from the second ·p, and reads what followed the first
      List<Place> places =
          circuit.places().stream().filter(p -> p.part().equals(induction)).toList();
      assertEquals(List.of(15), places.stream().map(Place::position).toList());
      assertEquals(3, places.getFirst().key());
    }
    List<Place> places = circuit.places().stream().filter(p -> p.part().equals(previous)).toList();
    assertEquals(List.of(3), places.stream().map(Place::position).toList());
    assertEquals(2, places.getFirst().key());
    assertTrue(circuit.kept() >= 0.6, circuit.toString());
    assertTrue(circuit.edgesKept() >= 0.75 * circuit.kept(), circuit.toString());
    assertTrue(circuit.edges().size() < circuit.measured().size() / 2, circuit.toString());
  }

  @Test
  void aTextWithoutStructureHasNone() {
    Trace trace = loupe.trace(TraceRequest.of(Prompt.text("zq xv kj wp fh gd bn mt")));
    assertTrue(trace.circuit().isEmpty());
    assertTrue(trace.verdict().startsWith("no small circuit: "), trace.verdict());
  }

  @Test
  void theEffortIsKnownBefore() {
    TraceRequest request = twice();
    TraceEffort effort = loupe.traceEffort(request);
    List<Long> rows = new ArrayList<>();
    List<Phase> phases = new ArrayList<>();
    Trace trace =
        loupe.trace(
            request.listener(
                (phase, done, total) -> {
                  assertEquals(effort.layerRows(), total);
                  rows.add(done);
                  phases.add(phase);
                  return true;
                }));
    assertTrue(trace.cuts() <= effort.cuts(), trace.cuts() + " of " + effort.cuts());
    assertEquals(rows.stream().sorted().toList(), rows);
    assertEquals(phases.stream().sorted().toList(), phases);
    assertEquals(
        List.of(Phase.EFFECTS, Phase.SEARCH, Phase.EDGES), phases.stream().distinct().toList());
    assertTrue(rows.getLast() <= effort.layerRows());
    long effects = rows.get(phases.lastIndexOf(Phase.EFFECTS));
    assertEquals(effort.effects(), effects);
  }

  @Test
  void itCanBeEnded() {
    for (Phase at : List.of(Phase.EFFECTS, Phase.SEARCH, Phase.EDGES)) {
      List<Phase> after = new ArrayList<>();
      TraceRequest request =
          twice()
              .listener(
                  (phase, done, total) -> {
                    after.add(phase);
                    return phase != at;
                  });
      assertThrows(CancellationException.class, () -> loupe.trace(request));
      assertEquals(1, after.stream().filter(at::equals).count());
    }
  }

  @Test
  void whatIsNotThereIsSaid() {
    TraceRequest three = TraceRequest.of(Prompt.ids(1, 2, 3));
    refused("no token 3: the text has tokens 0..2", () -> loupe.trace(three.at(3)));
    refused(
        "token id 1024 is outside the vocabulary 0..1023", () -> loupe.trace(three.target(1024)));
    refused(
        "token id 1024 is outside the vocabulary 0..1023", () -> loupe.trace(three.against(1024)));
    refused("token 7 against itself: no difference", () -> loupe.trace(three.target(7).against(7)));
    refused("token -2: not 0 or more", () -> three.against(-2));
    refused(
        "token 256: the model reads 256 tokens",
        () -> loupe.trace(TraceRequest.of(Prompt.ids(new int[257]))));
    refused(
        "the second text has 2 tokens and the first 3: patching takes as many",
        () -> loupe.trace(three.patch(Prompt.ids(1, 2))));
    refused(
        "both texts are the same up to token 2: patching would change nothing",
        () -> loupe.trace(three.patch(Prompt.ids(1, 2, 3))));
    refused("there is no second text to patch from", () -> three.ablation(Ablation.PATCH));
    refused("a share of 1.0: not between 0 and 1", () -> three.keep(1));
    refused("a circuit of 0 parts: not 1 to 64", () -> three.most(0));
  }

  private static void refused(String message, Executable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call).getMessage());
  }

  @OnGpu
  @Test
  void theGpuMeasuresTheSame() throws Exception {
    Path tiny = TinyModel.in(folder).folder();
    TraceRequest request =
        TraceRequest.of(Prompt.text("To be or not to be"))
            .at(3)
            .patch(Prompt.text("To my or not to my"));
    try (Loupe cpu = Loupe.open(tiny, Options.defaults().backend(Backend.CPU).threads(2));
        Loupe gpu = Loupe.open(tiny, Options.defaults().backend(Backend.CUDA))) {
      Trace expected = cpu.trace(request);
      Trace trace = gpu.trace(request);
      assertEquals(expected.value(), trace.value(), NEAR);
      assertEquals(expected.ablated(), trace.ablated(), NEAR);
      assertEquals(expected.circuit().isPresent(), trace.circuit().isPresent());
      for (int i = 0; i < expected.effects().size(); i++) {
        Effect on = trace.effects().get(i);
        Effect of = expected.effects().get(i);
        assertEquals(of.zero(), on.zero(), NEAR);
        assertEquals(of.mean(), on.mean(), NEAR);
        assertEquals(of.patched(), on.patched(), NEAR);
        assertEquals(of.direct(), on.direct(), NEAR);
      }
      List<Circuit.Link> links =
          List.of(
              new Circuit.Link(new Part(0, 1), Optional.of(Part.mlp(1)), Via.MLP),
              new Circuit.Link(new Part(0, 1), Optional.of(new Part(1, 0)), Via.KEY),
              new Circuit.Link(Part.mlp(1), Optional.empty(), Via.LOGIT));
      double kept = cpu.kept(request.mlps(true), links);
      assertEquals(kept, gpu.kept(request.mlps(true), links), 0.01 + 0.01 * Math.abs(kept));
    }
  }
}
