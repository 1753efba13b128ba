package dev.loupe.text.codec;

import static java.nio.charset.StandardCharsets.US_ASCII;

import ai.djl.huggingface.tokenizers.jni.TokenizersLibrary;
import dev.loupe.cuda.driver.LibraryCache;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.FileFault;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.net.URLConnection;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.jspecify.annotations.Nullable;

/**
 * Hugging Face's tokenizer library, out of DJL's jar and into this process.
 *
 * <p>DJL would load it by itself, but not the way we want: to choose a flavour it first looks for
 * the CUDA runtime through JNA (about 0.1 s even without a GPU; with one it starts the driver), it
 * may report home and download another library unless system properties forbid both for the whole
 * process, and where the home folder is not writable it trusts whatever lies in a shared folder
 * under /tmp. Loading the library here leaves {@link TokenizersLibrary}, DJL's plain native
 * methods, as the only class of it that runs: no network, no logging, no properties.
 *
 * <p>The library (15 MB) is unpacked once into {@code tokenizers-<version>} under {@code
 * LOUPE_CACHE} if that is set, else under the user's cache folder; if that can't be used, into a
 * private folder under the temporary one, each time. Before it is loaded its SHA-256 must be one of
 * those in tokenizers.sha256, which this source has: a file that was changed in the cache is
 * unpacked again, and a jar that has another library is refused.
 */
final class NativeLibrary {
  private static boolean loaded;

  private NativeLibrary() {}

  /**
   * Loads the library unless that was done before.
   *
   * @throws CheckpointException if there is none for this machine or it doesn't load
   */
  static synchronized void load() throws CheckpointException {
    if (!loaded) {
      String os = System.getProperty("os.name", "");
      String home = System.getProperty("user.home", "");
      load(
          platform(os, System.getProperty("os.arch", "")),
          LibraryCache.folder(System::getenv, os, home));
      loaded = true;
    }
  }

  /** The name that DJL's jar has for a system and processor, e.g. {@code linux-x86_64}. */
  static String platform(String os, String arch) {
    String system = os.startsWith("Windows") ? "win" : os.startsWith("Mac") ? "osx" : "linux";
    return system + "-" + (arch.equals("amd64") ? "x86_64" : arch);
  }

  /** Loads from {@code cache} or, if that fails, from a temporary folder. */
  static void load(String platform, @Nullable Path cache) throws CheckpointException {
    Throwable failure = null;
    if (cache != null) {
      try {
        Path folder = cache.resolve("tokenizers-" + version());
        LibraryCache.createPrivate(folder);
        loadFrom(folder, platform);
        return;
      } catch (IOException | UnsatisfiedLinkError e) {
        failure = e; // a full disk, a read-only home, a file system that runs no programs
      }
    }
    try {
      loadOnceFrom(Files.createTempDirectory("loupe-"), platform); // its owner's only
    } catch (IOException | UnsatisfiedLinkError e) {
      if (failure != null) {
        e.addSuppressed(failure);
      }
      throw new CheckpointException(
          ("the tokenizer's native library for %s does not load (%s): set LOUPE_CACHE to a folder"
                  + " that can be written and may hold programs")
              .formatted(platform, why(e)),
          e);
    }
  }

  private static String why(Throwable e) {
    return switch (e) {
      case FileSystemException file -> "%s: %s".formatted(file.getFile(), FileFault.of(file));
      case IOException io -> FileFault.of(io);
      default -> String.valueOf(e.getMessage());
    };
  }

  private static void loadFrom(Path folder, String platform) throws IOException {
    for (String file : files(platform)) {
      String name = platform + "/cpu/" + file;
      String wanted = hashes().get(name);
      Path library = LibraryCache.unpack(resource(name), file, folder);
      if (!sha256(library).equals(wanted)) {
        LibraryCache.deleteQuietly(library);
        library = LibraryCache.unpack(resource(name), file, folder);
        String found = sha256(library);
        if (!found.equals(wanted)) {
          LibraryCache.deleteQuietly(library);
          throw new IOException(
              "%s in DJL's jar has the SHA-256 %s, not %s".formatted(name, found, wanted));
        }
      }
      System.load(library.toString());
    }
  }

  /** The SHA-256 of each library, in hex, by its name in DJL's jar. */
  static Map<String, String> hashes() throws IOException {
    try (InputStream in = NativeLibrary.class.getResourceAsStream("tokenizers.sha256")) {
      if (in == null) {
        throw new FileNotFoundException("tokenizers.sha256 is missing");
      }
      Map<String, String> hashes = new HashMap<>();
      for (String line : new String(in.readAllBytes(), US_ASCII).lines().toList()) {
        hashes.put(line.substring(66), line.substring(0, 64)); // as sha256sum writes them
      }
      return hashes;
    }
  }

  static String sha256(Path file) throws IOException {
    try (InputStream in = Files.newInputStream(file)) {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      byte[] piece = new byte[1 << 16];
      for (int n = in.read(piece); n >= 0; n = in.read(piece)) {
        digest.update(piece, 0, n);
      }
      return HexFormat.of().formatHex(digest.digest());
    } catch (NoSuchAlgorithmException everyJavaHasIt) {
      throw new AssertionError(everyJavaHasIt);
    }
  }

  /** Leaves nothing behind, except on Windows, which keeps the files of loaded libraries. */
  private static void loadOnceFrom(Path folder, String platform) throws IOException {
    try {
      loadFrom(folder, platform);
    } finally {
      for (String file : files(platform)) {
        LibraryCache.deleteQuietly(folder.resolve(file));
      }
      LibraryCache.deleteQuietly(folder);
    }
  }

  private static List<String> files(String platform) {
    String library = System.mapLibraryName("tokenizers");
    // Windows does not look for a library's own needs beside it: load them first
    return platform.startsWith("win")
        ? List.of("libwinpthread-1.dll", "libgcc_s_seh-1.dll", "libstdc++-6.dll", library)
        : List.of(library);
  }

  private static String version() throws IOException {
    Properties properties = new Properties();
    try (InputStream in = resource("tokenizers.properties").getInputStream()) {
      properties.load(in);
    }
    return properties.getProperty("version", "unknown");
  }

  private static URLConnection resource(String name) throws IOException {
    URL url = TokenizersLibrary.class.getResource("/native/lib/" + name);
    if (url == null) {
      throw new FileNotFoundException("DJL has no " + name);
    }
    return url.openConnection();
  }
}
