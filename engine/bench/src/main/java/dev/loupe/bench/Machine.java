package dev.loupe.bench;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Where something was measured.
 *
 * @param cpu the processor's name
 * @param processors how many this process may use
 * @param vectorBits width of the widest vectors; 0 without the Vector API
 * @param java version of the runtime
 * @param load processors that were busy in the minute before; negative where nobody counts
 */
public record Machine(String cpu, int processors, int vectorBits, String java, double load) {

  /** This machine as it is now; ask before the work begins, which is load too. */
  public static Machine here() {
    boolean vectors = ModuleLayer.boot().findModule("jdk.incubator.vector").isPresent();
    return new Machine(
        cpuName(),
        Runtime.getRuntime().availableProcessors(),
        vectors ? Probe.vectorBits() : 0,
        Runtime.version().toString(),
        ManagementFactory.getOperatingSystemMXBean().getSystemLoadAverage());
  }

  private static String cpuName() {
    try {
      for (String line : Files.readAllLines(Path.of("/proc/cpuinfo"))) {
        if (line.startsWith("model name")) {
          return line.substring(line.indexOf(':') + 1).strip();
        }
      }
    } catch (IOException e) {
      // no Linux
    }
    return System.getProperty("os.arch");
  }
}
