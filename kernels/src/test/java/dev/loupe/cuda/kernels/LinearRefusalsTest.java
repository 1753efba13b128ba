package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Refusal;
import dev.loupe.cuda.kernels.LinearEpilogue.Output;
import dev.loupe.cuda.kernels.LinearEpilogue.QkvAppend;
import dev.loupe.cuda.kernels.LinearEpilogue.Residual;
import org.junit.jupiter.api.Test;

/** Which variant takes which shapes and cards, and what is refused with a sentence. */
@OnDevice
class LinearRefusalsTest extends LinearFixture {
  @Test
  void picksTensorCoresWhereTheyCan() {
    LinearProblem even = new LinearProblem(F32, F32, 1, 8, 4, SEED);
    LinearProblem odd = new LinearProblem(F32, F32, 1, 7, 4, SEED);
    try (LinearBuffers a = new LinearBuffers(gpu, even, true);
        LinearBuffers b = new LinearBuffers(gpu, odd, true)) {
      String best = gpu.computeCapability() >= 80 ? "v4" : "v3";
      assertEquals(best, linear.variantFor(a.map, 1).name());
      assertEquals("v3", linear.variantFor(b.map, 1).name());
    }
  }

  @OnDevice(emulated = true)
  @Test
  void olderCardsGetTheVersionWithoutTensorCores() {
    Emulator.card(75, -1, -1, -1);
    LinearProblem p = new LinearProblem(F32, F32, 2, 8, 4, SEED);
    try (Gpu turing = Gpu.open(0);
        LinearBuffers b = new LinearBuffers(turing, p, true)) {
      LinearKernels kernels = new LinearKernels(turing);
      assertEquals("v3", kernels.variantFor(b.map, 2).name());
      Output out = new Output(b.target(F32), KernelActivation.NONE);
      assertEquals(
          "linear v4: needs compute capability 8.0 and later, this card has 7.5; use v3",
          Refusal.ofArguments(
              () -> kernels.prepare(LinearKernels.VARIANTS.getLast(), b.map, b.x, out)));
    } finally {
      Emulator.usualCard();
    }
  }

  private static void refused(String message, Runnable call) {
    Exception e = assertThrows(IllegalArgumentException.class, call::run);
    assertEquals(message, e.getMessage());
  }

  @Test
  void refusesACacheInTheMemoryOfQkv() {
    Variant v3 = LinearKernels.VARIANTS.get(2);
    LinearProblem p = new LinearProblem(Element.F16, Element.F16, 4, 12, 48, SEED);
    try (LinearBuffers b = new LinearBuffers(gpu, p, true)) {
      DeviceBuffer all = b.empty(F32, 4 * LinearKernelsTest.CACHE.elements());
      DeviceBuffer apart = b.empty(F32, LinearKernelsTest.CACHE.elements());
      refused(
          "linear v3: out and keys overlap",
          () -> linear.prepare(v3, b.map, b.x, append(b, all, all, apart)));
      refused(
          "linear v3: out and values overlap",
          () -> linear.prepare(v3, b.map, b.x, append(b, all, apart, all)));
    }
  }

  private static QkvAppend append(
      LinearBuffers b, DeviceBuffer qkv, DeviceBuffer keys, DeviceBuffer values) {
    return new QkvAppend(qkv, keys, values, b.with(0), b.with(0), LinearKernelsTest.CACHE);
  }

  @Test
  void refusesShapesAndBuffersWithASentence() {
    Variant v3 = LinearKernels.VARIANTS.get(2);
    Variant v4 = LinearKernels.VARIANTS.get(3);
    LinearProblem p = new LinearProblem(Element.F16, Element.F16, 4, 12, 6, SEED);
    try (LinearBuffers b = new LinearBuffers(gpu, p, true)) {
      Output out = new Output(b.target(F32), KernelActivation.NONE);
      refused(
          "linear v4: in is 12, not a multiple of 8, so rows of W are not multiples of 16 bytes;"
              + " use v3",
          () -> linear.prepare(v4, b.map, b.x, out));
      refused(
          "linear v3: no kernel for x in BF16 and W in F16",
          () -> linear.prepare(v3, b.map, b.empty(Element.BF16, 12), out));
      refused(
          "linear v3: no kernel from x in F16 to out in BF16",
          () ->
              linear.prepare(
                  v3, b.map, b.x, new Output(b.target(Element.BF16), KernelActivation.NONE)));
      refused(
          "linear v3: acc holds F16, not F32",
          () -> linear.prepare(v3, b.map, b.x, new Residual(b.target(Element.F16))));
      refused(
          "linear v3: x and out overlap",
          () -> linear.prepare(v3, b.map, b.x, new Output(b.x, KernelActivation.NONE)));
      refused(
          "linear v3: x starts at an address that is no multiple of 16",
          () -> linear.prepare(v3, b.map, b.x.slice(1, 24), out));
      LinearCall call = linear.prepare(v3, b.map, b.x, out);
      refused("linear v3: rows is 0, not between 1 and 7", () -> call.run(0));
      refused("linear v3: rows is 8, not between 1 and 7", () -> call.run(8));
      DeviceBuffer keys = b.empty(F32, LinearKernelsTest.CACHE.elements());
      refused(
          "linear v3: 6 outputs for q, k and v of 2 heads of width 8, which are 48",
          () ->
              linear.prepare(
                  v3,
                  b.map,
                  b.x,
                  new QkvAppend(
                      b.target(F32), keys, keys, b.with(0), b.with(0), LinearKernelsTest.CACHE)));
      refused(
          "linear: gemv v0 is not a variant of linear",
          () -> linear.prepare(GemvKernels.VARIANTS.getFirst(), b.map, b.x, out));
      b.x.close();
      refused("linear v3: x is closed", () -> linear.prepare(v3, b.map, b.x, out));
      assertTrue(Refusal.ofArguments(() -> call.run(1)).endsWith("was freed"));
    }
  }

  @Test
  void mapsAreCheckedWhenTheyAreMade() {
    LinearProblem p = new LinearProblem(F32, F32, 1, 4, 6, SEED);
    try (LinearBuffers b = new LinearBuffers(gpu, p, true)) {
      DeviceBuffer w = b.map.weight();
      DeviceBuffer bias = b.map.bias();
      refused(
          "linear map: weight has 24 elements, needs 28", () -> new LinearMap(w, null, bias, 4, 7));
      refused("linear map: bias has 6 elements, needs 8", () -> new LinearMap(w, null, bias, 3, 8));
      refused(
          "linear map: in is 0, not between 1 and 268435456",
          () -> new LinearMap(w, null, bias, 0, 6));
      refused(
          "linear map: weight holds F32 and there are 6 scales; I8 needs them, no other does",
          () -> new LinearMap(w, bias, bias, 4, 6));
      DeviceBuffer bytes = b.empty(Element.I8, 24);
      refused(
          "linear map: weight holds I8 and there are no scales; I8 needs them, no other does",
          () -> new LinearMap(bytes, null, bias, 4, 6));
      refused(
          "linear v3: no kernel for W in I8",
          () ->
              linear.prepare(
                  LinearKernels.VARIANTS.get(2),
                  new LinearMap(bytes, bias, bias, 4, 6),
                  b.x,
                  new Output(b.target(F32), KernelActivation.NONE)));
    }
  }
}
