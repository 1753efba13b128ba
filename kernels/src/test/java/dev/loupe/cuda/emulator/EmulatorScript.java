package dev.loupe.cuda.emulator;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** Runs a script of {@code src/test/emulator}, for what the sanitizers check: not with a JVM. */
public final class EmulatorScript {
  private static final Path FOLDER = Path.of("src", "test", "emulator");

  private EmulatorScript() {}

  /**
   * Runs it in target/sanitizers, the folder of what the scripts build; its output is the message
   * if it fails.
   */
  public static void run(String name) throws IOException, InterruptedException {
    run(name, Path.of("target", "sanitizers"), List.of());
  }

  /** Likewise in another folder, which is its first argument. */
  public static void run(String name, Path folder, List<String> arguments)
      throws IOException, InterruptedException {
    assumeTrue(onPath("g++") && onPath("bash"), "no g++ or no bash: the emulator is left out");
    Path work = Files.createDirectories(folder);
    Path output = work.resolve(name.replace(".sh", ".log"));
    List<String> command =
        new ArrayList<>(List.of("bash", FOLDER.resolve(name).toString(), work.toString()));
    command.addAll(arguments);
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.redirectErrorStream(true).redirectOutput(output.toFile());
    // The scripts' processes have no business with the stand-in driver of this JVM.
    builder.environment().remove("LD_LIBRARY_PATH");
    int status;
    try (FileChannel file =
            FileChannel.open(
                work.resolve("lock"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
        FileLock _ = file.lock()) { // another JVM's script builds into the same folders
      Process process = builder.start();
      String before = "";
      while (!process.waitFor(10, TimeUnit.MINUTES)) {
        String now = state(process);
        if (now.equals(before)) { // a busy machine is slow, but not that slow
          process.descendants().forEach(ProcessHandle::destroyForcibly);
          process.destroyForcibly();
          break;
        }
        before = now;
      }
      status = process.waitFor();
    }
    assertEquals(0, status, () -> read(output));
  }

  /** Which processes of a script there are, and how long each has computed. */
  private static String state(Process process) {
    return process
        .descendants()
        .map(each -> each.pid() + " " + each.info().totalCpuDuration().orElse(Duration.ZERO))
        .sorted()
        .collect(Collectors.joining("\n"));
  }

  private static String read(Path file) {
    try {
      return new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
    } catch (IOException e) {
      return e.toString();
    }
  }

  private static boolean onPath(String program) {
    return Arrays.stream(System.getenv().getOrDefault("PATH", "").split(File.pathSeparator, -1))
        .anyMatch(folder -> Files.isExecutable(Path.of(folder, program)));
  }
}
