package dev.loupe.cuda.emulator;

import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * A JVM of its own, for what a process decides once: which driver there is, where libraries come
 * from.
 */
public final class ChildJvm {
  private ChildJvm() {}

  /** Opens GPU 0 and tells how that went. */
  static final class OpenGpu {
    private OpenGpu() {}

    public static void main(String[] args) {
      try (Gpu gpu = Emulator.open();
          DeviceBuffer buffer = gpu.allocate(Element.F32, 1)) {
        buffer.fill((byte) 0);
        System.out.println("opened " + gpu.name());
      } catch (GpuException e) {
        System.out.println(e.getMessage());
      }
      System.out.println("java.io.tmpdir " + System.getProperty("java.io.tmpdir"));
      System.out.println("doctor " + CudaDriver.find().summary());
    }
  }

  /** Runs {@link OpenGpu}. */
  public static String openGpu(Map<String, String> environment, Path temporary)
      throws IOException, InterruptedException {
    return run(OpenGpu.class, environment, temporary);
  }

  /**
   * Runs the {@code main} of a class.
   *
   * @param environment added to this process's; an empty value removes
   * @return its output, errors too
   */
  public static String run(
      Class<?> main, Map<String, String> environment, Path temporary, String... args)
      throws IOException, InterruptedException {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.add("--enable-native-access=ALL-UNNAMED");
    command.add("-Xshare:auto");
    command.add("-XX:TieredStopAtLevel=1");
    command.add("-XX:+UseSerialGC");
    command.add("-Djava.io.tmpdir=" + temporary);
    command.add("-cp");
    command.add(System.getProperty("java.class.path"));
    command.add(main.getName());
    command.addAll(List.of(args));
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    environment.forEach(
        (name, value) -> {
          if (value.isEmpty()) {
            builder.environment().remove(name);
          } else {
            builder.environment().put(name, value);
          }
        });
    Process process = builder.start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertTrue(process.waitFor(500, TimeUnit.SECONDS), "still running");
    return output + "exit " + process.exitValue() + "\n";
  }
}
