package dev.loupe.text;

import ai.djl.huggingface.tokenizers.jni.TokenizersLibrary;
import dev.loupe.weights.CheckpointException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.net.URLConnection;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Properties;
import java.util.function.UnaryOperator;
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
 * private folder under the temporary one, each time.
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
      load(platform(os, System.getProperty("os.arch", "")), cache(System::getenv, os, home));
      loaded = true;
    }
  }

  /** The name that DJL's jar has for a system and processor, e.g. {@code linux-x86_64}. */
  static String platform(String os, String arch) {
    String system = os.startsWith("Windows") ? "win" : os.startsWith("Mac") ? "osx" : "linux";
    return system + "-" + (arch.equals("amd64") ? "x86_64" : arch);
  }

  /** Where to keep the library, or null if the environment names no folder for such things. */
  static @Nullable Path cache(UnaryOperator<@Nullable String> env, String os, String home) {
    String chosen = env.apply("LOUPE_CACHE");
    if (chosen != null && !chosen.isEmpty()) {
      return Path.of(chosen).toAbsolutePath();
    }
    String shared = env.apply(os.startsWith("Windows") ? "LOCALAPPDATA" : "XDG_CACHE_HOME");
    Path folder =
        shared != null && !shared.isEmpty()
            ? Path.of(shared)
            : Path.of(home, os.startsWith("Mac") ? "Library/Caches" : ".cache");
    // a user without a home has "?" or "" for one
    return folder.isAbsolute() ? folder.resolve("loupe") : null;
  }

  /** Loads from {@code cache} or, if that fails, from a temporary folder. */
  static void load(String platform, @Nullable Path cache) throws CheckpointException {
    Throwable failure = null;
    if (cache != null) {
      try {
        Path folder = cache.resolve("tokenizers-" + version());
        createPrivate(folder);
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
              .formatted(platform, e),
          e);
    }
  }

  private static void loadFrom(Path folder, String platform) throws IOException {
    for (String file : files(platform)) {
      System.load(unpack(platform, file, folder).toString());
    }
  }

  /** Leaves nothing behind, except on Windows, which keeps the files of loaded libraries. */
  private static void loadOnceFrom(Path folder, String platform) throws IOException {
    try {
      loadFrom(folder, platform);
    } finally {
      for (String file : files(platform)) {
        deleteQuietly(folder.resolve(file));
      }
      deleteQuietly(folder);
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

  /** The unpacked {@code file} in {@code folder}: the one that is there if it may be trusted. */
  private static Path unpack(String platform, String file, Path folder) throws IOException {
    URLConnection resource = resource(platform + "/cpu/" + file);
    Path target = folder.resolve(file);
    if (Files.isRegularFile(target) && Files.size(target) == resource.getContentLengthLong()) {
      return target;
    }
    Path part = Files.createTempFile(folder, file, ".part");
    try (InputStream in = resource.getInputStream()) {
      Files.copy(in, part, StandardCopyOption.REPLACE_EXISTING);
      Files.move(part, target, StandardCopyOption.ATOMIC_MOVE); // another process may do the same
    } finally {
      Files.deleteIfExists(part);
    }
    return target;
  }

  /** Makes {@code folder} unless it is there; one that others can write to is refused. */
  static void createPrivate(Path folder) throws IOException {
    boolean posix = folder.getFileSystem().supportedFileAttributeViews().contains("posix");
    if (!posix) {
      Files.createDirectories(folder);
      return;
    }
    FileAttribute<?> ownerOnly =
        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));
    Files.createDirectories(folder, ownerOnly);
    PosixFileAttributes attributes =
        Files.getFileAttributeView(folder, PosixFileAttributeView.class).readAttributes();
    boolean others =
        attributes.permissions().contains(PosixFilePermission.GROUP_WRITE)
            || attributes.permissions().contains(PosixFilePermission.OTHERS_WRITE);
    String user = System.getProperty("user.name");
    if (others || !attributes.owner().getName().equals(user)) {
      throw new IOException("%s is not private to %s".formatted(folder, user));
    }
  }

  private static void deleteQuietly(Path path) {
    try {
      Files.deleteIfExists(path);
    } catch (IOException e) {
      // a leftover in the temporary folder is no reason to fail
    }
  }
}
