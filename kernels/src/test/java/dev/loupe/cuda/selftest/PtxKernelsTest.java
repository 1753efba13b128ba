package dev.loupe.cuda.selftest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.kernels.KernelCatalogue;
import dev.loupe.cuda.probe.KernelPtx;
import dev.loupe.cuda.probe.PtxDriver;
import java.nio.file.Path;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The PTX of the kernels as it is shipped, run by the interpreter and held to the plain loops of
 * the self-test. Launches are Loupe's own.
 */
@OnDevice(emulated = true)
@Timeout(value = 9, unit = TimeUnit.MINUTES)
class PtxKernelsTest {
  private static final Element F16 = Element.F16;
  private static final KernelPtx PTX = KernelPtx.ofTheJar();

  private final Gpu gpu = Emulator.open();

  @AfterEach
  void close() {
    gpu.close();
  }

  /** A test of one variant in one element. */
  private interface Run {
    void of(SelfTestInputs c);
  }

  private SelfTest.Finding finding(KernelPtx ptx, Run run) {
    try (PtxDriver driver = new PtxDriver(ptx);
        SelfTestInputs c = new SelfTestInputs(gpu)) {
      run.of(c);
      driver.check();
      assertFalse(driver.kernels().isEmpty());
      return c.finding("");
    }
  }

  private void right(KernelPtx ptx, Run run) {
    right(finding(ptx, run));
  }

  private static void right(SelfTest.Finding finding) {
    assertTrue(finding.isRight(), finding.text());
  }

  /** Kernels that a prompt and a decoding step are made of. */
  @Tag("sweep")
  @Test
  void kernelsOfAModelAreRight() {
    right(PTX, c -> new AttentionSelfTest(c).attention(variant("attention", "v2"), F16));
    right(PTX, c -> new AttentionSelfTest(c).attention(variant("attention", "v4"), F16));
    right(PTX, c -> new AttentionSelfTest(c).attentionMap(variant("attention_map", "v3"), F16));
    right(PTX, c -> new LinearSelfTest(c).linear(variant("linear", "v3"), Element.F32));
    right(PTX, c -> new LinearSelfTest(c).linear(variant("linear", "v4"), Element.BF16));
    right(PTX, c -> new LinearSelfTest(c).gemv(variant("gemv", "v1"), F16));
  }

  private static Variant variant(String family, String name) {
    return KernelCatalogue.of(family).stream()
        .filter(v -> v.name().equals(name))
        .findFirst()
        .orElseThrow();
  }

  @ParameterizedTest
  @ValueSource(strings = {"embedding", "layernorm", "epilogue", "pointwise", "sample", "step"})
  void allOfAFamilyIsRight(String family) {
    right(family(PTX, family));
  }

  private SelfTest.Finding family(KernelPtx ptx, String family) {
    try (PtxDriver driver = new PtxDriver(ptx)) {
      SelfTest.Finding finding = SelfTest.of(gpu, family);
      driver.check();
      return finding;
    }
  }

  /** The emulator knows nothing of this text: its results would stay right. */
  @Test
  void aSwappedOperandInThePtxOfAKernelIsSeen() {
    KernelPtx ptx = KernelPtx.ofTheJar();
    ptx.mutate(
        "attention_v4_d64_f16",
        "(mma\\.sync\\S+ \\{[^}]*\\}, \\{[^}]*\\}, )\\{(%r\\d+),(%r\\d+)\\}",
        "$1{$3,$2}");
    SelfTest.Finding finding =
        finding(ptx, c -> new AttentionSelfTest(c).attention(variant("attention", "v4"), F16));
    assertTrue(finding.wrong() > 0, finding.text());
  }

  /** Every kernel that is shipped, of head size 64. */
  @Test
  @Tag("exhaustive")
  void everyKernelIsRight() {
    everyKernelIsRight(KernelPtx.ofTheJar());
  }

  /** The code of cards before sm_80, of which the jar has cubins alone. */
  @Test
  @Tag("exhaustive")
  @Timeout(value = 30, unit = TimeUnit.MINUTES)
  void everyKernelOfTuringIsRight(@TempDir Path work) {
    Emulator.card(75, -1, -1, -1);
    try {
      everyKernelIsRight(KernelPtx.madeFor("compute_75", work));
    } finally {
      Emulator.card(80, -1, -1, -1);
    }
  }

  private static void everyKernelIsRight(KernelPtx ptx) {
    Set<String> ran = new TreeSet<>();
    try (Gpu card = Emulator.open()) {
      for (String family : SelfTest.families()) {
        try (PtxDriver driver = new PtxDriver(ptx)) {
          SelfTest.Finding finding = SelfTest.of(card, family);
          driver.check();
          right(finding);
          ran.addAll(driver.kernels());
        }
      }
      Set<String> missed = new TreeSet<>(ptx.kernels());
      missed.removeAll(ran);
      missed.removeIf(name -> name.matches("attention_v[345]_d(?!64_).*"));
      missed.removeIf(name -> isOfLaterCards(name, card.computeCapability()));
      assertEquals(Set.of(), missed);
    }
  }

  /** True for a variant's kernel in an element that only later cards have. */
  private static boolean isOfLaterCards(String kernel, int computeCapability) {
    return KernelCatalogue.all().stream()
        .filter(v -> kernel.startsWith(v.family() + "_" + v.name() + "_"))
        .anyMatch(
            v ->
                v.elements().stream()
                    .anyMatch(
                        e ->
                            !v.supports(e, computeCapability)
                                && (kernel + "_").contains("_" + e.suffix() + "_")));
  }
}
