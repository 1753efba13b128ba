package dev.loupe.cuda.probe;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.cuda.ptx.Module;
import dev.loupe.cuda.ptx.text.PtxException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.FieldSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Mistakes in the inline PTX of gpu.cuh: the interpreter sees each, the emulator cannot. */
@Timeout(value = 9, unit = TimeUnit.MINUTES)
class PtxMutationTest {
  private static final List<PtxMutation> MUTATIONS = PtxMutation.ALL;

  /** One mistake in each primitive at once, so that nvcc runs once. */
  @ParameterizedTest
  @ValueSource(strings = {"compute_75", "compute_80"})
  void eachPrimitiveWithAMistakeIsSeen(String target, @TempDir Path work) throws IOException {
    Map<Probe, PtxMutation> first = new EnumMap<>(Probe.class);
    for (PtxMutation mutation : MUTATIONS) {
      if (mutation.target().equals(target)) {
        first.putIfAbsent(mutation.probe(), mutation);
      }
    }
    ProbeDevice device = mutated(List.copyOf(first.values()), target, work);
    for (Probe probe : Probe.values()) {
      if (first.containsKey(probe)) {
        seen(probe, device);
      } else if (device.has(probe.from())) { // and nothing else
        assertDoesNotThrow(() -> probe.check(device), probe.name());
      }
    }
  }

  @ParameterizedTest
  @FieldSource("MUTATIONS")
  @Tag("exhaustive")
  void eachMistakeIsSeen(PtxMutation mutation, @TempDir Path work) throws IOException {
    seen(mutation.probe(), mutated(List.of(mutation), mutation.target(), work));
  }

  private static void seen(Probe probe, ProbeDevice device) {
    Throwable e = assertThrows(Throwable.class, () -> probe.check(device), probe.name());
    assertEquals(true, e instanceof AssertionError || e instanceof PtxException, () -> "" + e);
  }

  /** The PTX of the probes with another gpu.cuh, which is the same to g++. */
  private static ProbeDevice mutated(List<PtxMutation> mutations, String target, Path work)
      throws IOException {
    Path right = ProbePtx.HEADERS.resolve("gpu.cuh");
    String header = Files.readString(right);
    String text = header;
    for (PtxMutation mutation : mutations) {
      text = mutation.in(text);
    }
    assertNotEquals(header, text);
    Path wrong = Files.writeString(work.resolve("gpu.cuh"), text);
    Path emulator = Path.of("src", "test", "emulator");
    assertEquals(
        Nvcc.preprocessed(right, work, emulator), Nvcc.preprocessed(wrong, work, emulator));
    // a header is looked for beside the file that includes it first
    Files.copy(ProbePtx.HEADERS.resolve("element.cuh"), work.resolve("element.cuh"));
    Files.copy(ProbePtx.PROBES.resolve("probes.cu"), work.resolve("probes.cu"));
    return new ProbeDevice.Interpreted(Module.parse(Nvcc.ptx("probes.cu", target, work, work)));
  }
}
