package dev.loupe.cuda.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The build holds the packed kernels to the sources, in a copy of both: without nvcc, and with a
 * program in its place that answers with the PTX that was packed.
 */
@Tag("sweep")
class CompileCudaTest {
  private static final String PACKED = "src/main/resources/dev/loupe/cuda/images";
  private static final String UPDATE = "kernels/build/compile-cuda --update";

  @TempDir private Path folder;
  private Path kernels;
  private Path bin;

  private record Ran(int code, String said) {
    /** One line, which tells what is wrong. */
    void refused(String what) {
      assertEquals(1, code, said);
      assertTrue(said.contains(what), said);
      assertEquals(1, said.lines().count(), said);
    }
  }

  @BeforeEach
  void copy() throws IOException {
    for (String tool : new String[] {"bash", "awk", "sed", "xargs"}) {
      assumeTrue(onPath(tool), "needs " + tool);
    }
    kernels = folder.resolve("kernels");
    bin = Files.createDirectory(folder.resolve("bin"));
    for (String part :
        List.of(
            "build",
            "src/main/cuda",
            "src/test/cuda",
            PACKED,
            PACKED.replace("main", "test"),
            "resources.tsv")) {
      try (Stream<Path> files = Files.walk(Path.of(part))) {
        for (Path file : (Iterable<Path>) files::iterator) {
          Path copy = kernels.resolve(file);
          Files.createDirectories(copy.getParent());
          if (Files.isRegularFile(file)) {
            Files.copy(file, copy, StandardCopyOption.COPY_ATTRIBUTES);
          }
        }
      }
    }
  }

  private static boolean onPath(String tool) {
    return Stream.of(System.getenv("PATH").split(File.pathSeparator, -1))
        .anyMatch(part -> Files.isExecutable(Path.of(part, tool)));
  }

  /** The script, which sees the system's usual programs and those in {@code bin}. */
  private Ran check() throws Exception {
    ProcessBuilder builder =
        new ProcessBuilder(kernels.resolve("build/compile-cuda").toString())
            .redirectErrorStream(true);
    builder.environment().put("PATH", bin + ":/usr/bin:/bin");
    builder.environment().put("CUDA_HOME", folder.resolve("nowhere").toString());
    builder.environment().keySet().removeAll(List.of("CUDA_PATH", "NVCC_CCBIN"));
    Process process = builder.start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    return new Ran(process.waitFor(), said);
  }

  /** In place of nvcc: notes what it compiles, and writes what the archive has of it. */
  private void nvcc(String version, String more) throws IOException {
    Path nvcc = bin.resolve("nvcc");
    Files.writeString(
        nvcc,
        """
        #!/usr/bin/env bash
        if [ "$1" = --version ]; then
          echo "Cuda compilation tools, release 1.2, V%s"
          exit
        fi
        while [ $# -gt 1 ]; do
          case $1 in
            *.cu) name=${1%%.cu} ;;
          esac
          shift
        done
        echo "$name" >>%s
        cat ../../*/resources/dev/loupe/cuda/images/"$name".compute_80.ptx.xz | xz -d >"$1"
        %s
        """
            .formatted(version, folder.resolve("compiled"), more));
    assertTrue(nvcc.toFile().setExecutable(true));
  }

  private List<String> compiled() throws IOException {
    Path list = folder.resolve("compiled");
    List<String> names =
        Files.exists(list) ? Files.readAllLines(list).stream().sorted().toList() : List.of();
    Files.deleteIfExists(list);
    return names;
  }

  /** The version of nvcc that made the packed kernels. */
  private static String maker() {
    return KernelImages.built().made().replaceAll("^nvcc ([0-9.]+),.*", "$1");
  }

  private Path append(String file, String text) throws IOException {
    Path path = kernels.resolve(file);
    return Files.writeString(path, Files.readString(path) + text);
  }

  @Test
  void withoutNvccThePackedKernelsServe() throws Exception {
    assumeTrue(!Files.exists(Path.of("/usr/bin/nvcc")), "nvcc is among the system's programs");
    Ran ran = check();
    assertEquals(0, ran.code(), ran.said());
    assertTrue(ran.said().contains("the packed kernels are used (nvcc "), ran.said());
    assertTrue(ran.said().contains("no nvcc on PATH or in CUDA_HOME"), ran.said());

    append("src/main/cuda/attention_decode.cu", "\n");
    append("src/test/cuda/micro.cu", "\n");
    check()
        .refused(
            "were not made from attention_decode.cu as it is now: undo the change, or run "
                + UPDATE);
  }

  @Test
  void aHeaderMakesItsIncludersStale() throws Exception {
    append("src/main/cuda/linear_v4.cuh", "// more\n");
    check().refused("were not made from linear.cu as it is now");
    append("src/main/cuda/gpu.cuh", "// more\n");
    check().refused("were not made from attention.cu attention_decode.cu ");
  }

  @Test
  void sourcesThatComeAndGo() throws Exception {
    Path step = kernels.resolve("src/main/cuda/step.cu");
    Files.move(step, step.resolveSibling("stride.cu"));
    check().refused("were not made from step.cu stride.cu as it is now");
    Files.move(step.resolveSibling("stride.cu"), step);
    append("src/test/cuda/micro.cu", "\n");
    check().refused("were not made from micro.cu as it is now");
  }

  @Test
  void otherFlagsMakeAllStale() throws Exception {
    Path settings = kernels.resolve("build/cuda-settings");
    Files.writeString(settings, Files.readString(settings).replace("-std=c++17", "-std=c++20"));
    check().refused("were not made from attention.cu attention_decode.cu ");
  }

  @Test
  void damagedFiles() throws Exception {
    Path image = kernels.resolve(PACKED).resolve("gemv.sm_89.cubin.xz");
    byte[] bytes = Files.readAllBytes(image);
    bytes[bytes.length / 2] ^= 4;
    Files.write(image, bytes);
    check().refused(PACKED + "/gemv.sm_89.cubin.xz is corrupt: get it back, or run " + UPDATE);
    Files.delete(image);
    check().refused(PACKED + "/gemv.sm_89.cubin.xz is missing");
    Files.delete(kernels.resolve(PACKED).resolve("index"));
    check().refused("the packed kernels are missing (kernels/" + PACKED + "/index)");
  }

  @Test
  void aTableThatWasEdited() throws Exception {
    append("resources.tsv", "more\n");
    check().refused("resources.tsv was not written with the packed kernels");
  }

  @Test
  void anotherNvccTellsNoMore() throws Exception {
    nvcc("99.1.2", "exit 1");
    Ran ran = check();
    assertEquals(0, ran.code(), ran.said());
    assertTrue(ran.said().contains("nvcc 99.1.2 can't tell more of them"), ran.said());
    nvcc("12.4.1", "exit 1");
    ran = check();
    assertEquals(0, ran.code(), ran.said());
    assertTrue(ran.said().contains("nvcc 12.4.1 does not know compute_100"), ran.said());
    append("src/main/cuda/step.cu", "\n");
    check().refused("were not made from step.cu");
  }

  @Test
  void theSameNvccComparesWhatItDidNotYet() throws Exception {
    assumeTrue(onPath("xz") && onPath("g++"), "needs xz and g++");
    nvcc(maker(), "");
    Ran first = check();
    assertEquals(0, first.code(), first.said());
    List<String> all = compiled();
    assertTrue(
        all.containsAll(KernelImages.built().sources()) && all.contains("micro"), all.toString());
    assertEquals(new Ran(0, ""), check());
    assertEquals(List.of(), compiled());

    try (Stream<Path> marks = Files.list(kernels.resolve("target/cuda"))) {
      for (Path mark : (Iterable<Path>) marks::iterator) {
        if (mark.getFileName().toString().startsWith("step.")) {
          Files.delete(mark);
        }
      }
    }
    nvcc(maker(), "echo '// other code' >>\"$1\"");
    Ran other = check();
    assertEquals(1, other.code());
    assertTrue(
        other.said().contains("the packed kernels of step.cu were not made from it"), other.said());
    assertEquals(List.of("step"), compiled());
    assertEquals(1, check().code(), "and no mark is left");
  }
}
