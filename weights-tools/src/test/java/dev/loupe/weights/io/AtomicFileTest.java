package dev.loupe.weights.io;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.weights.Refusal;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

class AtomicFileTest {
  @TempDir Path folder;

  private static List<String> names(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.map(file -> file.getFileName().toString()).sorted().toList();
    }
  }

  private static void put(AtomicFile file, String text) throws IOException {
    file.stream().write(text.getBytes(UTF_8));
  }

  @Test
  void appearsWhenCommitted() throws IOException {
    Path target = folder.resolve("a");
    try (AtomicFile file = AtomicFile.create(target)) {
      put(file, "hello");
      assertFalse(Files.exists(target));
      assertEquals(folder, file.path().getParent());
      file.commit();
      assertEquals("hello", Files.readString(target));
      assertThrows(IllegalStateException.class, file::commit);
    }
    assertEquals(List.of("a"), names(folder));
  }

  @Test
  void leavesNothingBehindWithoutCommit() throws IOException {
    Path target = folder.resolve("a");
    Files.writeString(target, "old");
    try (AtomicFile file = AtomicFile.create(target)) {
      put(file, "new");
      file.stream().flush();
      assertEquals("new", Files.readString(file.path()));
      assertEquals("old", Files.readString(target));
    }
    assertEquals("old", Files.readString(target));
    assertEquals(List.of("a"), names(folder));
  }

  @Test
  void replacesAnOlderFile() throws IOException {
    Path target = folder.resolve("a");
    Files.writeString(target, "old and longer");
    try (AtomicFile file = AtomicFile.create(target)) {
      put(file, "new");
      file.commit();
    }
    assertEquals("new", Files.readString(target));
  }

  @Test
  void writesThroughTheChannelAtAnyPosition() throws IOException {
    Path target = folder.resolve("a");
    try (AtomicFile file = AtomicFile.create(target)) {
      file.channel().position(4);
      file.write(ByteBuffer.wrap("data".getBytes(UTF_8)));
      file.channel().position(0);
      file.write(ByteBuffer.wrap("size".getBytes(UTF_8)));
      file.commit();
    }
    assertEquals("sizedata", Files.readString(target));
  }

  @Test
  void takesTheLongestNames() throws IOException {
    Path target = folder.resolve("n".repeat(255));
    try (AtomicFile file = AtomicFile.create(target)) {
      put(file, "x");
      file.commit();
    }
    assertEquals("x", Files.readString(target));
  }

  @Test
  void writesWhereALinkLeads() throws IOException {
    Path real = Files.writeString(folder.resolve("real"), "old");
    Path link = Files.createSymbolicLink(folder.resolve("link"), Path.of("real"));
    try (AtomicFile file = AtomicFile.create(link)) {
      put(file, "new");
      file.commit();
    }
    assertTrue(Files.isSymbolicLink(link));
    assertEquals("new", Files.readString(real));
  }

  @Test
  void refusesWhatCannotBeWritten() throws IOException {
    Refusal.of(() -> AtomicFile.create(folder), folder, "is a folder");
    Path orphan = folder.resolve("missing").resolve("a");
    Refusal.of(() -> AtomicFile.create(orphan), orphan, "no folder " + folder.resolve("missing"));
    Path plain = Files.writeString(folder.resolve("plain"), "x");
    Refusal.of(() -> AtomicFile.create(plain.resolve("a")), plain.resolve("a"), "no folder");
    Path overlong = folder.resolve("n".repeat(256));
    AtomicFile file = AtomicFile.create(overlong);
    put(file, "x");
    Refusal.of(file::commit, overlong, "can't be written");
    file.close();
    assertEquals(List.of("plain"), names(folder));
  }

  @Test
  void refusesFoldersThatTakeNoFiles() throws IOException {
    Path closed = Files.createDirectory(folder.resolve("closed"));
    assertTrue(closed.toFile().setWritable(false));
    assumeFalse(Files.isWritable(closed), "this user may write anywhere");
    Refusal.of(() -> AtomicFile.create(closed.resolve("a")), closed.resolve("a"), "denied");
  }

  @Test
  void refusesASystemsOwnFolder() {
    Path inProc = Path.of("/proc/loupe-test");
    assumeTrue(Files.isDirectory(Path.of("/proc")));
    Refusal.of(() -> AtomicFile.create(inProc), inProc, "can't be written");
  }

  @Test
  void writesStraightToDevices() throws IOException {
    Path device = Path.of("/dev/null");
    assumeTrue(Files.exists(device));
    try (AtomicFile file = AtomicFile.create(device)) {
      put(file, "x");
      file.commit();
    }
    assertTrue(Files.exists(device) && !Files.isRegularFile(device));
  }

  @Test
  void saysWhichFileIsFull() throws IOException {
    Path full = Path.of("/dev/full");
    assumeTrue(Files.exists(full));
    try (AtomicFile file = AtomicFile.create(full)) {
      Refusal.of(() -> file.write(ByteBuffer.wrap(new byte[1])), full, "can't be written");
      put(file, "x");
      Refusal.of(file::commit, full, "can't be written");
    }
  }

  @Test
  @Timeout(200)
  void writesStraightToPipes() throws Exception {
    Path pipe = folder.resolve("pipe");
    assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
    Process reader = new ProcessBuilder("cat", pipe.toString()).start();
    try (AtomicFile file = AtomicFile.create(pipe)) {
      put(file, "through");
      file.commit();
    }
    assertEquals("through", new String(reader.getInputStream().readAllBytes(), UTF_8));
    assertEquals(List.of("pipe"), names(folder));
  }

  /** What the child of the next test runs: writes, reports, and waits to be ended. */
  public static final class Endless {
    private Endless() {}

    public static void main(String[] args) throws Exception {
      AtomicFile file = AtomicFile.create(Path.of(args[0]));
      try (OutputStream out = file.stream()) {
        out.write(new byte[100_000]);
      }
      System.out.println("written");
      Thread.sleep(600_000);
    }
  }

  @Test
  @Timeout(200)
  void aSignalLeavesNothingBehind() throws Exception {
    Path target = Files.writeString(folder.resolve("a"), "old");
    Process child =
        new ProcessBuilder(
                ProcessHandle.current().info().command().orElseThrow(),
                "-cp",
                System.getProperty("java.class.path"),
                Endless.class.getName(),
                target.toString())
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    assertEquals('w', child.getInputStream().read());
    assertEquals(2, names(folder).size());
    child.destroy(); // SIGTERM
    assertTrue(child.waitFor(100, TimeUnit.SECONDS));
    assertEquals(List.of("a"), names(folder));
    assertEquals("old", Files.readString(target));
  }

  /** As in a root folder that is no mount point: what is not known keeps nobody from writing. */
  @Test
  void aFileSystemThatDoesNotTellItsRoomHasRoom() {
    assertEquals(Long.MAX_VALUE, AtomicFile.room(folder.resolve("absent")));
    assertTrue(AtomicFile.room(folder) < Long.MAX_VALUE);
  }
}
