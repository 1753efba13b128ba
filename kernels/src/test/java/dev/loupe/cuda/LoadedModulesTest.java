package dev.loupe.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.driver.ImageSource;
import dev.loupe.cuda.driver.KernelCompiler;
import dev.loupe.cuda.driver.PtxText;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Refusal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What is loaded for which card, and what is said where the driver has to compile. */
@OnDevice(emulated = true)
class LoadedModulesTest {
  private final List<String> heard = new ArrayList<>();

  @BeforeEach
  void listen() {
    KernelCompiler.listen(
        new KernelCompiler.Listener() {
          @Override
          public void compiling(String kernel, int number, double milliseconds, boolean kept) {
            assertTrue(milliseconds >= 0 && (number > 1 || milliseconds == 0), kernel);
            heard.add(number + " " + kernel);
          }

          @Override
          public void compiled() {
            heard.add("done");
          }
        });
  }

  @AfterEach
  void usualCard() {
    Emulator.usualCard();
    KernelCompiler.listen(KernelCompiler.NOBODY);
  }

  @Test
  void cubinsAreNotCompiled() {
    for (int card : new int[] {75, 80, 86, 89, 90}) {
      Emulator.card(card, 12000, 1, -1);
      try (Gpu gpu = Emulator.open()) {
        assertTrue(
            gpu.images().startsWith("sm_" + card + (card == 90 ? "a" : "") + " cubins"),
            gpu.images());
        gpu.kernel("layernorm", "layernorm_v2_f16");
        gpu.kernel("linear", "linear_v3_f16");
      }
    }
    assertEquals(List.of(), heard);
  }

  @Test
  void ofPtxOnlyWhatIsAskedForIsCompiled() {
    Emulator.card(87, 12000, 1, -1);
    List<Integer> sizes = new ArrayList<>();
    ImageSource images =
        (file, capability, driver) -> {
          byte[] image = Emulator.IMAGES.image(file, capability, driver);
          sizes.add(image.length);
          return image;
        };
    try (Gpu gpu = Gpu.open(0, images)) {
      gpu.kernel("layernorm", "layernorm_v2_f16");
      gpu.kernel("layernorm", "layernorm_v3_bf16");
      gpu.kernel("layernorm", "layernorm_v2_f16");
      gpu.kernel("linear", "linear_v3_f16");
      assertEquals(
          "finding the kernel layernorm_v99_f16 in layernorm.cu failed: named symbol not found"
              + " (CUDA_ERROR_NOT_FOUND)",
          Refusal.of(() -> gpu.kernel("layernorm", "layernorm_v99_f16")));
    }
    assertEquals(
        List.of(
            "1 layernorm_v2_f16",
            "done",
            "2 layernorm_v3_bf16",
            "done",
            "3 linear_v3_f16",
            "done",
            "4 layernorm_v99_f16",
            "done"),
        heard);
    assertEquals(2, sizes.size(), "each text is unpacked once");
  }

  @Test
  void aTextThatIsRefusedIsDoneToo() {
    byte[] tooNew =
        ".version 9.9\n.target sm_80\n.address_size 64\n.visible .entry a()\n{\n\tret;\n}\n"
            .getBytes(StandardCharsets.US_ASCII);
    try (Gpu gpu = Gpu.open(0, (file, capability, driver) -> tooNew)) {
      String message = Refusal.of(() -> gpu.kernel("some", "a"));
      assertTrue(message.contains("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), message);
      assertTrue(message.endsWith(": update the driver, or run on the CPU"), message);
    }
    assertEquals(List.of("1 a", "done"), heard);
  }

  @Test
  void aDriverWithoutItsCompilerSaysWhatIsMissing() {
    Emulator.card(87, 12000, 1, -1);
    Emulator.jit(false);
    try (Gpu gpu = Emulator.open()) {
      String message = Refusal.of(() -> gpu.kernel("layernorm", "layernorm_v2_f16"));
      assertTrue(message.contains("CUDA_ERROR_JIT_COMPILER_NOT_FOUND"), message);
      assertTrue(
          message.endsWith(
              ": the driver's compiler, libnvidia-ptxjitcompiler, is not installed; install the"
                  + " whole driver, or run on the CPU"),
          message);
    }
    assertEquals(List.of("1 layernorm_v2_f16", "done"), heard);
  }

  @Test
  void tellsCubinsFromText() {
    assertTrue(PtxText.is("// PTX".getBytes(StandardCharsets.US_ASCII)));
    assertFalse(PtxText.is(new byte[] {0x7f, 'E', 'L', 'F'}));
    assertFalse(PtxText.is(new byte[0]));
  }
}
