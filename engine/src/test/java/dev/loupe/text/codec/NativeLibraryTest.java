package dev.loupe.text.codec;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import ai.djl.huggingface.tokenizers.jni.TokenizersLibrary;
import dev.loupe.cuda.driver.LibraryCache;
import dev.loupe.weights.io.CheckpointException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class NativeLibraryTest {
  private static final String HERE =
      NativeLibrary.platform(System.getProperty("os.name"), System.getProperty("os.arch"));

  @TempDir private Path folder;

  private static List<Path> filesUnder(Path folder) throws IOException {
    try (Stream<Path> files = Files.walk(folder)) {
      return files.filter(Files::isRegularFile).toList();
    }
  }

  @Test
  void platformsAreNamedAsInTheJar() {
    assertEquals("linux-x86_64", NativeLibrary.platform("Linux", "amd64"));
    assertEquals("linux-aarch64", NativeLibrary.platform("Linux", "aarch64"));
    assertEquals("osx-aarch64", NativeLibrary.platform("Mac OS X", "aarch64"));
    assertEquals("win-x86_64", NativeLibrary.platform("Windows 11", "amd64"));
  }

  @Test
  void whereTheLibraryIsKept() {
    Path home = folder.toAbsolutePath();
    String user = home.toString();
    Map<String, String> none = Map.of();
    assertEquals(home.resolve(".cache/loupe"), LibraryCache.folder(none::get, "Linux", user));
    assertEquals(
        home.resolve("Library/Caches/loupe"), LibraryCache.folder(none::get, "Mac OS X", user));
    Map<String, String> xdg = Map.of("XDG_CACHE_HOME", home + "/x");
    assertEquals(home.resolve("x/loupe"), LibraryCache.folder(xdg::get, "Linux", user));
    Map<String, String> chosen = Map.of("LOUPE_CACHE", home + "/y", "XDG_CACHE_HOME", home + "/x");
    assertEquals(home.resolve("y"), LibraryCache.folder(chosen::get, "Linux", user));
    assertNull(LibraryCache.folder(none::get, "Linux", "?"));
    assertNull(LibraryCache.folder(none::get, "Linux", ""));
  }

  @Test
  void unpacksOnceIntoAPrivateFolder() throws IOException {
    NativeLibrary.load(HERE, folder.resolve("cache"));
    List<Path> files = filesUnder(folder);
    Path library = files.getFirst();
    if (!HERE.startsWith("win")) {
      assertEquals(1, files.size());
      assertEquals(
          "rwx------",
          PosixFilePermissions.toString(Files.getPosixFilePermissions(library.getParent())));
    }
    var unpacked = Files.getLastModifiedTime(library);
    NativeLibrary.load(HERE, folder.resolve("cache"));
    assertEquals(unpacked, Files.getLastModifiedTime(library));
  }

  @Test
  void aLibraryOfTheWrongSizeIsUnpackedAgain() throws IOException {
    NativeLibrary.load(HERE, folder);
    Path library = filesUnder(folder).getFirst();
    long size = Files.size(library);
    // a new file: the old one is mapped into this process
    Path half = Files.write(folder.resolve("half"), new byte[1000]);
    Files.move(half, library, StandardCopyOption.REPLACE_EXISTING);
    NativeLibrary.load(HERE, folder);
    assertEquals(size, Files.size(library));
  }

  @Test
  void aLibraryThatWasChangedIsUnpackedAgain() throws IOException {
    NativeLibrary.load(HERE, folder);
    Path library = filesUnder(folder).getFirst();
    String right = NativeLibrary.sha256(library);
    byte[] content = Files.readAllBytes(library);
    content[content.length / 2] ^= 1;
    // a new file: the old one is mapped into this process
    Path other = Files.write(folder.resolve("other"), content);
    Files.move(other, library, StandardCopyOption.REPLACE_EXISTING);
    NativeLibrary.load(HERE, folder);
    assertEquals(right, NativeLibrary.sha256(library));
  }

  @Test
  void theHashesAreThoseOfAllLibrariesInTheJar() throws Exception {
    Path jar =
        Path.of(
            TokenizersLibrary.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    Map<String, String> found = new HashMap<>();
    try (ZipFile zip = new ZipFile(jar.toFile())) {
      for (ZipEntry entry : Collections.list(zip.entries())) {
        String name = entry.getName();
        if (name.startsWith("native/lib/") && name.contains("/cpu/") && !entry.isDirectory()) {
          Path file = folder.resolve("library");
          Files.copy(zip.getInputStream(entry), file, StandardCopyOption.REPLACE_EXISTING);
          found.put(name.substring("native/lib/".length()), NativeLibrary.sha256(file));
        }
      }
    }
    assertEquals(found, NativeLibrary.hashes());
  }

  @Test
  void fallsBackWhereTheCacheCannotBeUsed() throws IOException {
    Path file = Files.createFile(folder.resolve("file"));
    NativeLibrary.load(HERE, file.resolve("below")); // no folder can be made there
    NativeLibrary.load(HERE, null);
    assertEquals(List.of(file), filesUnder(folder));
  }

  @Test
  void aFolderThatOthersCanWriteToIsNotTrusted() throws IOException {
    assumeTrue(!HERE.startsWith("win"), "POSIX permissions");
    Path cache = folder.resolve("cache");
    LibraryCache.createPrivate(cache);
    LibraryCache.createPrivate(cache);
    for (String permissions : List.of("rwxrwx---", "rwx----w-")) {
      Files.setPosixFilePermissions(cache, PosixFilePermissions.fromString(permissions));
      assertThrows(IOException.class, () -> LibraryCache.createPrivate(cache), permissions);
    }
  }

  @Test
  void aPlatformWithoutALibraryGetsOneSentence() {
    CheckpointException e =
        assertThrows(CheckpointException.class, () -> NativeLibrary.load("linux-sparc", folder));
    String message = String.valueOf(e.getMessage());
    assertTrue(
        message.startsWith("the tokenizer's native library for linux-sparc does not load"),
        message);
    assertTrue(message.contains("LOUPE_CACHE"), message);
    assertFalse(message.contains("\n"), message);
  }
}
