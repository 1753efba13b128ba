package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.Checkout;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What {@code scripts/loupe} gives Java, and what it remembers of a system from start to start. */
class LauncherTest {
  private static final Path SCRIPT =
      Checkout.ROOT.resolve("scripts/loupe").toAbsolutePath().normalize();
  private static final List<String> MODULES =
      List.of("weights-tools", "kernels", "engine", "engine/bench", "engine/server", "engine/cli");

  @TempDir Path folder;
  private Path home;
  private Path known;

  /** A checkout that was built, without sources, and a Java that prints its arguments. */
  @BeforeEach
  void checkout() throws IOException {
    assumeTrue(Files.isExecutable(SCRIPT), "not in a checkout");
    assumeTrue(Files.isExecutable(Path.of("/bin/bash")), "there is no bash");
    home = folder.resolve("checkout");
    Path script = home.resolve("scripts/loupe");
    Files.createDirectories(script.getParent());
    Files.copy(SCRIPT, script);
    assertTrue(script.toFile().setExecutable(true));
    Files.writeString(home.resolve("pom.xml"), "");
    for (String module : MODULES) {
      Files.createDirectories(home.resolve(module).resolve("target/classes"));
      Files.createDirectories(home.resolve(module).resolve("src/main"));
      Files.writeString(home.resolve(module).resolve("pom.xml"), "");
    }
    Path built = Files.createFile(home.resolve("engine/cli/target/.built"));
    Files.setLastModifiedTime(built, FileTime.from(Instant.now().plusSeconds(3600)));
    known = home.resolve("engine/cli/target/.known");
  }

  private Path java(String name, String modules) throws IOException {
    Path jdk = folder.resolve(name);
    Path java = jdk.resolve("bin/java");
    Files.createDirectories(java.getParent());
    Files.writeString(java, "#!/bin/sh\necho " + name + " \"$@\"\n");
    assertTrue(java.toFile().setExecutable(true));
    Files.writeString(
        jdk.resolve("release"), "JAVA_VERSION=\"25.0.1\"\nMODULES=\"" + modules + "\"\n");
    return jdk;
  }

  private String start(Path jdk, String... arguments) throws Exception {
    List<String> command = new ArrayList<>(List.of(home.resolve("scripts/loupe").toString()));
    command.addAll(List.of(arguments));
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().put("JAVA_HOME", jdk.toString());
    Process process = builder.start();
    process.getOutputStream().close();
    String output =
        new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
    assertEquals(0, process.waitFor(), output);
    return output;
  }

  @Test
  void theVersionStartsJavaWithNothingMore() throws Exception {
    Path jdk = java("one", "java.base jdk.incubator.vector");
    String version = start(jdk, "--version");
    assertTrue(
        version.matches(
            "one --enable-native-access=ALL-UNNAMED -cp \\S+ dev.loupe.cli.Main --version"),
        version);
    String text = start(jdk, "generate", "a b");
    assertTrue(text.contains(" --add-modules jdk.incubator.vector "), text);
    assertTrue(text.endsWith(" dev.loupe.cli.Main generate a b"), text);
  }

  @Test
  void whatIsKnownServesUntilJavaChanges() throws Exception {
    Path jdk = java("one", "java.base jdk.incubator.vector");
    String text = start(jdk, "generate");
    assertTrue(Files.readString(known).contains("/one/bin/java\nyes\n"), Files.readString(known));
    Files.delete(jdk.resolve("release")); // is not read again
    assertEquals(text, start(jdk, "generate"));

    String other = start(java("two", "java.base"), "generate");
    assertTrue(other.startsWith("two ") && !other.contains("--add-modules"), other);
    java("two", "java.base jdk.incubator.vector");
    Files.setLastModifiedTime(
        folder.resolve("two/bin/java"), FileTime.from(Instant.now().plusSeconds(60)));
    assertTrue(start(folder.resolve("two"), "generate").contains("--add-modules"), "newer Java");
  }

  @Test
  void aLinkIsFollowedAnew() throws Exception {
    Path link = folder.resolve("link");
    Files.createSymbolicLink(link, java("one", "java.base"));
    assertTrue(start(link, "generate").startsWith("one "));
    Files.delete(link);
    Files.createSymbolicLink(link, java("two", "java.base"));
    Files.setLastModifiedTime(link.resolve("bin/java"), FileTime.from(Instant.EPOCH));
    assertTrue(start(link, "generate").startsWith("two "));
  }

  @Test
  void damageToWhatIsKnownHurtsNoStart() throws Exception {
    Path jdk = java("one", "java.base jdk.incubator.vector");
    String text = start(jdk, "generate");
    String whole = Files.readString(known);
    for (String damaged :
        List.of(
            "",
            "\n",
            whole.substring(0, whole.length() / 2),
            whole.replace("yes", "maybe"),
            whole.replace("/one/bin/java", "/gone/bin/java"),
            "\u0000\u0001".repeat(500))) {
      Files.writeString(known, damaged);
      assertEquals(text, start(jdk, "generate"), damaged);
      assertEquals(whole, Files.readString(known), "it is made anew");
    }
    Files.delete(known);
    Files.createDirectory(known); // can't be written
    assertEquals(text, start(jdk, "generate"));
    Files.createFile(known.resolve("file"));
    assertEquals(text, start(jdk, "generate"));
    try (var files = Files.list(known.getParent())) {
      assertFalse(files.anyMatch(f -> f.getFileName().toString().startsWith(".known.")), "left");
    }
  }
}
