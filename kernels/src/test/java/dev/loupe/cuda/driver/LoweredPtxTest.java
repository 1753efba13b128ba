package dev.loupe.cuda.driver;

import static jcuda.nvptxcompiler.JNvPTXCompiler.nvPTXCompilerCompile;
import static jcuda.nvptxcompiler.JNvPTXCompiler.nvPTXCompilerCreate;
import static jcuda.nvptxcompiler.JNvPTXCompiler.nvPTXCompilerDestroy;
import static jcuda.nvptxcompiler.JNvPTXCompiler.nvPTXCompilerGetCompiledProgramSize;
import static jcuda.nvptxcompiler.JNvPTXCompiler.nvPTXCompilerGetErrorLog;
import static jcuda.nvptxcompiler.JNvPTXCompiler.nvPTXCompilerGetErrorLogSize;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.regex.Pattern;
import jcuda.nvptxcompiler.JNvPTXCompiler;
import jcuda.nvptxcompiler.nvPTXCompileResult;
import jcuda.nvptxcompiler.nvPTXCompilerHandle;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * A second opinion on the PTX whose version was lowered for older drivers: JCuda ships the compiler
 * of CUDA 12.0, older than the one that wrote the PTX, and it needs neither card nor toolkit.
 */
class LoweredPtxTest {
  @BeforeAll
  static void loadsTheCompiler() {
    JCudaLibrary.load(JNvPTXCompiler.class, "JNvPTXCompiler");
  }

  private static final KernelImages.Kind PTX = KernelImages.KINDS.getLast();

  static List<String> sources() {
    return KernelImages.built().sources();
  }

  @ParameterizedTest
  @ValueSource(strings = {"embedding", "layernorm"})
  void isTakenByAnOlderCompiler(String source) {
    assertTaken(source);
    assertAKernelAloneIsTaken(source);
  }

  /** The large ones take the compiler seconds. */
  @ParameterizedTest
  @MethodSource("sources")
  @Tag("sweep")
  void eachIsTakenByAnOlderCompiler(String source) {
    assertTaken(source);
    assertAKernelAloneIsTaken(source);
  }

  private static void assertTaken(String source) {
    byte[] ptx = KernelImagesTest.load(source, PTX);
    assertEquals("", compile(Arrays.copyOf(ptx, ptx.length + 1), "sm_80"), source);
  }

  /** As the driver gets it. */
  private static void assertAKernelAloneIsTaken(String source) {
    byte[] ptx = KernelImagesTest.load(source, PTX);
    List<String> kernels = entries(ptx);
    assertTrue(kernels.getFirst().startsWith(source), kernels.toString());
    for (String kernel : new LinkedHashSet<>(List.of(kernels.getFirst(), kernels.getLast()))) {
      byte[] alone = PtxText.only(ptx, kernel);
      assertEquals(List.of(kernel), entries(alone));
      assertEquals("", compile(Arrays.copyOf(alone, alone.length + 1), "sm_80"), kernel);
    }
    assertArrayEquals(ptx, PtxText.only(ptx, kernels.getFirst() + "_"), "no such kernel");
  }

  private static List<String> entries(byte[] ptx) {
    return Pattern.compile("\\.entry (\\w+)\\(")
        .matcher(new String(ptx, StandardCharsets.US_ASCII))
        .results()
        .map(entry -> entry.group(1))
        .toList();
  }

  @Test
  void theOlderCompilerIsOldAndRefuses() {
    String ptx =
        ".version 6.5\n.target sm_75\n.address_size 64\n.visible .entry k() {\n%s\nret;\n}\n\0";
    assertEquals("", compile(bytes(ptx.formatted("")), "sm_75"));
    String tooNew = ptx.formatted("cp.async.wait_all;");
    assertTrue(compile(bytes(tooNew), "sm_80").contains("cp.async"), "came with PTX 7.0");
    String unlowered = ptx.formatted("").replace("6.5", "9.0");
    assertTrue(compile(bytes(unlowered), "sm_75").contains("9.0"), "a version to come");
  }

  private static byte[] bytes(String ptx) {
    return ptx.getBytes(StandardCharsets.US_ASCII);
  }

  /** What the compiler complains of; empty if it made a program. */
  private static String compile(byte[] ptx, String target) {
    nvPTXCompilerHandle compiler = new nvPTXCompilerHandle();
    int rc = nvPTXCompilerCreate(compiler, ptx.length, ptx);
    if (rc != nvPTXCompileResult.NVPTXCOMPILE_SUCCESS) {
      return nvPTXCompileResult.stringFor(rc);
    }
    try {
      String[] options = {"--gpu-name=" + target, "--warning-as-error", "-O0"};
      rc = nvPTXCompilerCompile(compiler, options.length, options);
      if (rc == nvPTXCompileResult.NVPTXCOMPILE_SUCCESS) {
        long[] size = new long[1];
        nvPTXCompilerGetCompiledProgramSize(compiler, size);
        return size[0] > 0 ? "" : "an empty program";
      }
      long[] length = new long[1];
      nvPTXCompilerGetErrorLogSize(compiler, length);
      byte[] log = new byte[Math.toIntExact(length[0]) + 1];
      nvPTXCompilerGetErrorLog(compiler, log);
      return nvPTXCompileResult.stringFor(rc)
          + ": "
          + new String(log, StandardCharsets.US_ASCII).strip();
    } finally {
      nvPTXCompilerDestroy(compiler);
    }
  }
}
