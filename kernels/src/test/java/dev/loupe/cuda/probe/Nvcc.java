package dev.loupe.cuda.probe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** Compilers of this machine, each for one file. A test that needs one is skipped without it. */
final class Nvcc {
  private Nvcc() {}

  /**
   * The PTX of a source.
   *
   * @param target e.g. {@code compute_80}
   * @param folders with the source and what it includes, the first to look in first
   */
  static String ptx(String source, String target, Path work, Path... folders) {
    String nvcc = find();
    assumeTrue(nvcc != null, "no nvcc on PATH or in CUDA_HOME");
    Path ptx = work.resolve(target + ".ptx");
    List<String> command =
        new ArrayList<>(
            List.of(
                Objects.requireNonNull(nvcc),
                "-std=c++17",
                "-ptx",
                "-arch=" + target,
                folders[0].resolve(source).toString(),
                "-o",
                ptx.toString()));
    for (Path folder : folders) {
      command.add("-I" + folder);
    }
    run(command, work);
    return read(ptx);
  }

  /** What g++ reads of a header, as the emulator's build does. */
  static String preprocessed(Path header, Path work, Path... folders) {
    String compiler = onPath("g++");
    assumeTrue(compiler != null, "no g++ on PATH");
    List<String> command =
        new ArrayList<>(
            List.of(Objects.requireNonNull(compiler), "-std=c++17", "-E", "-P", "-x", "c++", "-w"));
    for (Path folder : folders) {
      command.add("-I" + folder);
    }
    command.add(header.toString());
    return run(command, work);
  }

  private static @Nullable String find() {
    String nvcc = onPath("nvcc");
    return nvcc != null
        ? nvcc
        : Stream.of("CUDA_HOME", "CUDA_PATH")
            .map(System.getenv()::get)
            .filter(Objects::nonNull)
            .map(home -> Path.of(home, "bin", "nvcc"))
            .filter(Files::isExecutable)
            .map(Path::toString)
            .findFirst()
            .orElse(null);
  }

  private static @Nullable String onPath(String program) {
    return Arrays.stream(System.getenv().getOrDefault("PATH", "").split(File.pathSeparator, -1))
        .map(folder -> Path.of(folder, program))
        .filter(Files::isExecutable)
        .map(Path::toString)
        .findFirst()
        .orElse(null);
  }

  private static String run(List<String> command, Path work) {
    Path output = work.resolve("output");
    Path errors = work.resolve("errors");
    try {
      Process process =
          new ProcessBuilder(command)
              .redirectOutput(output.toFile())
              .redirectError(errors.toFile())
              .start();
      if (!process.waitFor(8, TimeUnit.MINUTES)) {
        process.destroyForcibly();
      }
      assertEquals(0, process.waitFor(), () -> command + ": " + read(errors));
      return read(output);
    } catch (IOException | InterruptedException e) {
      throw new IllegalStateException(command.toString(), e);
    }
  }

  private static String read(Path file) {
    try {
      return Files.readString(file);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
