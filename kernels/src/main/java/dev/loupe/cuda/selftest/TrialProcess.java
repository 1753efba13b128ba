package dev.loupe.cuda.selftest;

import dev.loupe.cuda.driver.JCudaLibrary;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.JarURLConnection;
import java.net.URISyntaxException;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.CodeSource;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import jcuda.driver.JCudaDriver;
import jcuda.jcublas.JCublas2;
import org.jspecify.annotations.Nullable;
import org.tukaani.xz.XZInputStream;

/** A Java process that does a {@link TrialRun}, and is ended where it hangs. */
final class TrialProcess implements AutoCloseable {
  /** How a child ends that somebody asked to end: by SIGHUP, SIGINT and SIGTERM. */
  private static final Set<Integer> ASKED_TO_END = Set.of(129, 130, 143);

  /**
   * A message of the child.
   *
   * @param what its first word; {@code exit} once it has ended, {@code silent} if it said nothing
   *     for too long
   * @param more the rest
   */
  record Message(String what, String more) {
    /** A number at the start of the rest. */
    int number() {
      String digits = more.split(" ", 2)[0];
      return digits.matches("[0-9]{1,9}") ? Integer.parseInt(digits) : -1;
    }

    /** What follows that number. */
    String text() {
      String[] parts = more.split(" ", 2);
      return parts.length < 2 ? "" : parts[1].strip();
    }
  }

  private final Process process;
  private final BlockingQueue<Message> messages = new LinkedBlockingQueue<>();

  private TrialProcess(Process process) {
    this.process = process;
    Thread.ofPlatform().daemon().name("loupe-trial").start(this::read);
  }

  /** The launcher of this Java; empty if it has none, as in an image made without. */
  static Optional<Path> launcher() {
    boolean windows = System.getProperty("os.name", "").startsWith("Windows");
    Path java = Path.of(System.getProperty("java.home", ""), "bin", windows ? "java.exe" : "java");
    return Files.isExecutable(java) ? Optional.of(java) : Optional.empty();
  }

  /**
   * Starts a child.
   *
   * @param key of the card that it has to find
   * @param first number of the trial that it begins with
   */
  static TrialProcess start(Path launcher, int device, String key, int first) throws IOException {
    List<String> command = new ArrayList<>();
    command.add(launcher.toString());
    command.addAll(
        List.of(
            "--enable-native-access=ALL-UNNAMED",
            "-Xshare:auto",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx512m",
            "-XX:-CreateCoredumpOnCrash",
            "-XX:ErrorFile=" + (File.separatorChar == '/' ? "/dev/null" : "NUL")));
    for (String property : List.of("java.io.tmpdir", "java.library.path", "user.home")) {
      String value = System.getProperty(property);
      if (value != null) {
        command.add("-D%s=%s".formatted(property, value));
      }
    }
    command.addAll(
        List.of(TrialRun.class.getName(), Integer.toString(device), key, Integer.toString(first)));
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().put("CLASSPATH", classPath());
    builder.environment().remove("JAVA_TOOL_OPTIONS"); // a debugger's port is taken already
    builder.environment().remove("JDK_JAVA_OPTIONS");
    return new TrialProcess(builder.start());
  }

  /** Where the classes lie that the child needs; also where a loader of its own gave us ours. */
  static String classPath() {
    Set<Path> parts = new LinkedHashSet<>();
    boolean all = true;
    for (Class<?> type :
        List.of(TrialRun.class, JCudaDriver.class, JCublas2.class, XZInputStream.class)) {
      all &= add(parts, source(type));
      for (String library : List.of("JCudaDriver", "JCublas2")) {
        @Nullable URL natives = JCudaLibrary.resource(type, library);
        if (natives != null) {
          all &= add(parts, jar(natives));
        }
      }
    }
    return all
        ? String.join(File.pathSeparator, parts.stream().map(Path::toString).toList())
        : System.getProperty("java.class.path", "");
  }

  private static boolean add(Set<Path> parts, @Nullable URL url) {
    try {
      if (url != null && url.getProtocol().equals("file")) {
        parts.add(Path.of(url.toURI()));
        return true;
      }
    } catch (URISyntaxException | IllegalArgumentException e) {
      // not the name of a file
    }
    return false;
  }

  private static @Nullable URL source(Class<?> type) {
    @Nullable CodeSource source = type.getProtectionDomain().getCodeSource();
    return source == null ? null : source.getLocation();
  }

  private static @Nullable URL jar(URL resource) {
    try {
      return resource.openConnection() instanceof JarURLConnection jar ? jar.getJarFileURL() : null;
    } catch (IOException e) {
      return null;
    }
  }

  private void read() {
    String last = "";
    try (BufferedReader lines =
        new BufferedReader(
            new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        int at = line.indexOf(TrialRun.MARK);
        if (at >= 0) {
          String[] words = line.substring(at + TrialRun.MARK.length()).split(" ", 2);
          messages.add(new Message(words[0], words.length < 2 ? "" : words[1].strip()));
        } else if (!line.isBlank()) {
          last = line.strip();
        }
      }
    } catch (IOException e) {
      // its end, as when it is ended from here
    }
    messages.add(new Message("exit", last));
  }

  /**
   * Waits for the next message.
   *
   * @throws InterruptedException if this thread is interrupted
   */
  Message next(Duration limit) throws InterruptedException {
    Message message = messages.poll(limit.toNanos(), TimeUnit.NANOSECONDS);
    return message == null ? new Message("silent", "") : message;
  }

  /** How the child ended, in words. */
  String end() throws InterruptedException {
    int code = process.waitFor();
    return code > 128
        ? "its process ended by signal %d".formatted(code - 128)
        : "its process ended with exit code %d".formatted(code);
  }

  /** True if somebody asked the child to end, as Ctrl-C asks all processes of a terminal. */
  boolean wasAskedToEnd() throws InterruptedException {
    return ASKED_TO_END.contains(process.waitFor());
  }

  /** Ends the child. */
  @Override
  public void close() {
    process.destroyForcibly();
  }
}
