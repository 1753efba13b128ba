package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.selftest.SelfTest;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class KernelCatalogueTest {
  private static final Path SOURCES = Path.of("src/main/cuda");
  private static final Path TABLE = Path.of("resources.tsv");

  /** From the build's table of registers, which has a line for every kernel and target. */
  private static Set<String> compiled() throws IOException {
    try (Stream<String> lines = Files.lines(TABLE)) {
      return lines
          .filter(line -> !line.startsWith("#") && !line.startsWith("kernel\t"))
          .map(line -> line.split("\t", 2)[0])
          .collect(Collectors.toCollection(TreeSet::new));
    }
  }

  @Test
  void everyKernelBelongsToARowAndEveryRowHasItsKernels() throws IOException {
    check(compiled());
  }

  @Test
  @OnDevice(emulated = true)
  void theEmulatorHasTheSameKernels() {
    Set<String> kernels = new TreeSet<>(Emulator.kernels());
    kernels.removeIf(kernel -> kernel.matches("(micro|probe)_.*")); // of src/test/cuda
    check(kernels);
  }

  private static void check(Set<String> kernels) {
    List<String> wrong = new ArrayList<>();
    Set<String> owned = new HashSet<>();
    for (Variant variant : KernelCatalogue.all()) {
      for (Element element : variant.elements()) {
        List<String> own = kernels.stream().filter(k -> variant.owns(k, element)).toList();
        if (own.isEmpty()) {
          wrong.add("there is no " + variant.kernel(element));
        }
        owned.addAll(own);
      }
    }
    kernels.stream().filter(k -> !owned.contains(k)).forEach(k -> wrong.add(k + " is in no row"));
    assertEquals(List.of(), wrong);
  }

  @Test
  void familiesAreTheSources() throws IOException {
    Set<String> families = new TreeSet<>();
    KernelCatalogue.all().forEach(v -> families.add(v.family()));
    Set<String> sources = new TreeSet<>();
    try (Stream<Path> files = Files.list(SOURCES)) {
      files
          .map(f -> f.getFileName().toString())
          .filter(f -> f.endsWith(".cu"))
          .forEach(f -> sources.add(f.substring(0, f.length() - ".cu".length())));
    }
    assertEquals(sources, families);
  }

  @Test
  void rowsAreDistinctAndFoundByFamily() {
    Set<String> names = new HashSet<>();
    for (Variant v : KernelCatalogue.all()) {
      assertTrue(names.add(v.family() + " " + v.name()), v.toString());
      assertTrue(KernelCatalogue.of(v.family()).contains(v), v.toString());
      assertFalse(v.idea().contains("\n") || v.limits().contains("\n"), "one line: " + v);
    }
    assertEquals(List.of(), KernelCatalogue.of("no such family"));
  }

  @Test
  void aRowSaysWhatItRunsOn() {
    Variant v = new Variant("linear", "v4", "tensor cores", "", Set.of(Element.BF16), 80);
    assertEquals("linear_v4_bf16", v.kernel(Element.BF16));
    assertTrue(v.supports(Element.BF16, 80) && v.supports(Element.BF16, 90));
    assertFalse(v.supports(Element.BF16, 75) || v.supports(Element.F32, 90));
    for (String own : List.of("linear_v4_bf16", "linear_v4_d64_bf16", "linear_v4_bf16_qkv")) {
      assertTrue(v.owns(own, Element.BF16), own);
      assertFalse(v.owns(own, Element.F16), own);
    }
    for (String other :
        List.of(
            "linear_v4_f32", "linear_v41_bf16", "linear_v3_bf16", "linear_v4_", "linear_v4bf16")) {
      assertFalse(v.owns(other, Element.BF16) || v.owns(other, Element.F32), other);
    }
  }

  @Test
  void everyFamilyButTheSamplersBeginsWithAPlainRow() {
    for (String family : SelfTest.families()) {
      if (family.equals("sample") || family.equals("step")) {
        continue; // the host takes over
      }
      Variant first = KernelCatalogue.of(family).getFirst();
      boolean formula = List.of("attention", "linear", "layernorm").contains(family);
      assertEquals(formula ? "v1" : "v0", first.name().substring(0, 2), family);
      assertFalse(formula && first.isPlain());
    }
    Variant plain = EmbeddingKernels.VARIANTS.getFirst();
    assertEquals("embedding_v0_any", plain.kernel(Element.BF16));
    assertTrue(plain.owns("embedding_v0_any", Element.F16));
    assertFalse(plain.owns("embedding_v0_f16", Element.F16));
    assertFalse(plain.owns("embedding_v0_any", Element.I8));
  }

  @Test
  void refusesRowsThatSayNothing() {
    Set<Element> f32 = Set.of(Element.F32);
    assertThrows(IllegalArgumentException.class, () -> new Variant("", "v1", "i", "", f32, 75));
    assertThrows(IllegalArgumentException.class, () -> new Variant("f", "v1", " ", "", f32, 75));
    assertThrows(
        IllegalArgumentException.class, () -> new Variant("f", "v1", "i", "", Set.of(), 75));
    assertThrows(IllegalArgumentException.class, () -> new Variant("f", "v1", "i", "", f32, 8));
  }
}
