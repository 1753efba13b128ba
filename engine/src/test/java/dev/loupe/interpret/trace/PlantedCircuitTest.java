package dev.loupe.interpret.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A circuit that is known beforehand is found, whole and without anything else. */
class PlantedCircuitTest {
  @TempDir Path folder;

  private static Loupe open(PlantedModel model) throws Exception {
    return Loupe.open(model.folder(), Options.defaults().backend(Backend.CPU).threads(2));
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20})
  void threeHeadsAreFound(int seed) throws Exception {
    PlantedModel planted = PlantedModel.in(folder, seed);
    try (Loupe loupe = open(planted)) {
      TraceRequest request = TraceRequest.of(planted.prompt()).target(planted.answer());
      for (boolean mlps : new boolean[] {false, true}) {
        Trace trace = loupe.trace(request.mlps(mlps));
        assertTrue(trace.value() > Math.log(0.9), "it says " + trace.value());
        Circuit circuit = trace.circuit().orElseThrow(() -> new AssertionError(trace.verdict()));
        assertEquals(planted.members(), circuit.members());
        Set<Circuit.Link> links = new HashSet<>();
        circuit.edges().forEach(e -> links.add(e.link()));
        assertEquals(Set.copyOf(planted.links()), links);
        assertTrue(circuit.kept() > 0.9 && circuit.edgesKept() > 0.9, circuit.toString());
      }
    }
  }

  /** A token that is not in the text: nothing brings it along. */
  @ParameterizedTest
  @ValueSource(ints = {31, 32, 33})
  void whatNothingWritesHasNoCircuit(int seed) throws Exception {
    PlantedModel planted = PlantedModel.in(folder, seed);
    List<Integer> text = planted.ids();
    int seen = 0;
    try (Loupe loupe = open(planted)) {
      for (int target = 0; target < 19; target++) {
        if (!text.contains(target)) {
          TraceRequest request = TraceRequest.of(planted.prompt()).target(target);
          Trace trace = loupe.trace(request);
          assertTrue(trace.circuit().isEmpty(), trace.verdict());
          assertTrue(trace.verdict().startsWith("no small circuit: all 15 parts"), trace.verdict());
          seen++;
        }
      }
    }
    assertEquals(6, seen);
  }

  /** A circuit with one wrong path does not keep the effect, and is refused by that. */
  @ParameterizedTest
  @ValueSource(ints = {1, 9, 17})
  void aWrongEdgeIsRefused(int seed) throws Exception {
    PlantedModel planted = PlantedModel.in(folder, seed);
    TraceRequest request = TraceRequest.of(planted.prompt()).target(planted.answer());
    List<Part> members = planted.members();
    List<Circuit.Link> right = planted.links();
    try (Loupe loupe = open(planted)) {
      assertTrue(loupe.kept(request, right) > 0.9);
      List<Circuit.Link> wrong =
          List.of(
              new Circuit.Link(members.get(0), Optional.of(members.get(1)), Via.QUERY),
              new Circuit.Link(members.get(0), Optional.of(members.get(2)), Via.VALUE),
              new Circuit.Link(members.get(1), Optional.empty(), Via.LOGIT));
      for (int i = 0; i < right.size(); i++) {
        List<Circuit.Link> links = new ArrayList<>(right);
        links.set(i, wrong.get(i));
        assertTrue(loupe.kept(request, links) < request.keep(), "with " + wrong.get(i));
      }
    }
  }
}
