package dev.loupe.cuda.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.cuda.emulator.ChildJvm;
import dev.loupe.cuda.emulator.OnDevice;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import jcuda.driver.JCudaDriver;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class JCudaLibraryTest {
  private static final String FILE = "libJCudaDriver-12.6.0-linux-x86_64.so";

  @TempDir private Path folder;

  @BeforeEach
  void onLinux() {
    assumeTrue(
        System.getProperty("os.name").equals("Linux")
            && System.getProperty("os.arch").equals("amd64"),
        "looks at the library for 64-bit Linux");
  }

  private static List<String> list(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.map(f -> f.getFileName().toString()).sorted().toList();
    }
  }

  @Test
  void choosesAFolder() {
    Map<String, String> none = Map.of();
    assertEquals(Path.of("/h/.cache/loupe"), LibraryCache.folder(none::get, "Linux", "/h"));
    Map<String, String> shared = Map.of("XDG_CACHE_HOME", "/x", "LOUPE_CACHE", "");
    assertEquals(Path.of("/x/loupe"), LibraryCache.folder(shared::get, "Linux", "/h"));
    Map<String, String> chosen = Map.of("XDG_CACHE_HOME", "/x", "LOUPE_CACHE", "/c");
    assertEquals(Path.of("/c"), LibraryCache.folder(chosen::get, "Linux", "/h"));
    assertNull(LibraryCache.folder(none::get, "Linux", "?"), "no home");
    assertNull(LibraryCache.folder(none::get, "Linux", ""), "no home");
    Map<String, String> windows = Map.of("LOCALAPPDATA", "/w");
    assertEquals(Path.of("/w/loupe"), LibraryCache.folder(windows::get, "Windows 11", "/h"));
  }

  @Test
  void unpacksOnceAndReplacesWhatIsNotWhole() throws IOException {
    Path library = JCudaLibrary.unpack(JCudaDriver.class, FILE, folder);
    long size = Files.size(library);
    assertTrue(size > 1_000_000, "" + size);
    Files.write(library, new byte[1000]);
    assertEquals(library, JCudaLibrary.unpack(JCudaDriver.class, FILE, folder));
    assertEquals(size, Files.size(library));
    assertEquals(List.of(FILE), list(folder), "and no parts are left");

    var before = Files.getLastModifiedTime(library);
    JCudaLibrary.unpack(JCudaDriver.class, FILE, folder);
    assertEquals(before, Files.getLastModifiedTime(library));

    assertThrows(
        IOException.class, () -> JCudaLibrary.unpack(JCudaDriver.class, "libother.so", folder));
  }

  @Test
  void refusesAFolderThatOthersCanWriteTo() throws IOException {
    Path open = folder.resolve("open");
    LibraryCache.createPrivate(open);
    LibraryCache.createPrivate(open);
    assertEquals("rwx------", PosixFilePermissions.toString(Files.getPosixFilePermissions(open)));
    for (String others : List.of("rwx-w----", "rwxr-xrwx")) {
      Files.setPosixFilePermissions(open, PosixFilePermissions.fromString(others));
      IOException e = assertThrows(IOException.class, () -> LibraryCache.createPrivate(open));
      assertTrue(String.valueOf(e.getMessage()).contains("is not private to"), others);
    }
  }

  @Test
  @OnDevice
  void whatLiesInTheTemporaryFolderIsNotLoaded() throws Exception {
    Path temporary = Files.createDirectory(folder.resolve("tmp"));
    Path planted = Files.writeString(temporary.resolve(FILE), "planted");
    Path cache = folder.resolve("cache");
    Map<String, String> environment = Map.of("LOUPE_CACHE", cache.toString());
    for (int time = 0; time < 2; time++) {
      String output = ChildJvm.openGpu(environment, temporary);
      assertTrue(output.startsWith("opened "), output);
      assertTrue(output.contains("java.io.tmpdir " + temporary + "\n"), output);
    }
    assertEquals("planted", Files.readString(planted));
    assertEquals(List.of(FILE), list(cache.resolve("jcuda-12.6.0")));
  }

  @Test
  @OnDevice
  void doesWithoutACacheFolder() throws Exception {
    Path temporary = Files.createDirectory(folder.resolve("tmp"));
    Path file = Files.createFile(folder.resolve("file"));
    Map<String, String> environment = Map.of("LOUPE_CACHE", file.toString());
    String output = ChildJvm.openGpu(environment, temporary);
    assertTrue(output.startsWith("opened "), output);
    assertFalse(list(temporary).stream().anyMatch(name -> name.startsWith("loupe")), output);

    String nowhere = ChildJvm.openGpu(environment, folder.resolve("missing"));
    assertTrue(nowhere.contains("JCuda's native library " + FILE + " does not load"), nowhere);
    assertTrue(nowhere.contains("set LOUPE_CACHE to a folder that can be written"), nowhere);
  }

  /** On a machine with a driver there is nothing to see: it can't be hidden. */
  @Test
  void withoutADriverOneSentenceSaysSo() throws Exception {
    assumeTrue(Files.notExists(Path.of("/dev/nvidiactl")), "there is a driver");
    Map<String, String> environment =
        Map.of("LD_LIBRARY_PATH", "", "LOUPE_CACHE", folder.toString());
    String output = ChildJvm.openGpu(environment, folder);
    assertTrue(
        output.startsWith(
            "no GPU can be used: the NVIDIA driver is not found (libcuda.so.1); install it, or run"
                + " on the CPU\n"),
        output);
    assertTrue(output.contains("doctor not found (libcuda.so.1)\n"), output);
    assertTrue(output.endsWith("exit 0\n"), output);
    assertEquals(List.of(), list(folder), "and nothing was unpacked");
  }
}
