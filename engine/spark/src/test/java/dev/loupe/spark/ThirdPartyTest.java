package dev.loupe.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

/** The third-party notices name each jar that comes with Loupe, and no other. */
class ThirdPartyTest {
  /** What the command line needs, all other modules included, and what a job on Spark needs. */
  private static final List<Path> CLASS_PATHS =
      List.of(Path.of("../cli/target/runtime-classpath"), Path.of("target/runtime-classpath"));

  private static final int JARS = 1; // a column of the table, from 0

  @Test
  void namesEachJarOfTheRuntimeClassPath() throws IOException {
    Set<String> needed = new TreeSet<>();
    for (Path classPath : CLASS_PATHS) {
      for (String entry : Files.readString(classPath).strip().split(File.pathSeparator, -1)) {
        Path file =
            Path.of(entry); // ends in artifact/version/jar, or in target/classes of a module
        int names = file.getNameCount();
        String artifact = file.getName(names - 3).toString();
        if (!file.getName(names - 2).toString().equals("target")
            && !artifact.startsWith("loupe-")) {
          needed.add(artifact);
        }
      }
    }
    Set<String> named = new TreeSet<>();
    for (String line : Files.readAllLines(Path.of("../../THIRD-PARTY.md"))) {
      String[] cells = line.split(" \\| ", -1);
      if (line.startsWith("| ") && !line.startsWith("| library ")) {
        named.addAll(List.of(cells[JARS].split(", ", -1)));
      }
    }
    assertEquals(String.join("\n", needed), String.join("\n", named));
  }
}
