package dev.loupe.kernels;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
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
import java.util.function.UnaryOperator;
import jcuda.JCudaVersion;
import jcuda.LibUtils;
import org.jspecify.annotations.Nullable;

/**
 * JCuda's native libraries, out of its jars and into this process.
 *
 * <p>Left alone, JCuda unpacks a library under a fixed name into the folder {@code java.io.tmpdir},
 * where everyone may write, and loads whatever lies there under that name. Here it is unpacked once
 * into {@code jcuda-<version>} under {@code LOUPE_CACHE} if that is set, else under the user's
 * cache folder, which only the user can write to; if that can't be used, into a private folder
 * under the temporary one, each time. JCuda then finds it, as it reads {@code java.io.tmpdir} when
 * its class is initialised and nothing else in Java reads that property after start-up. A library
 * on {@code java.library.path} comes before ours: whoever starts the process chose it.
 */
final class JCudaLibrary {
  private JCudaLibrary() {}

  /**
   * Initialises {@code owner}, a class of JCuda with native methods in {@code library}.
   *
   * @param library name without version and platform, e.g. {@code JCudaDriver}
   * @throws GpuException if there is none for this machine or it doesn't load
   */
  static void load(Class<?> owner, String library) {
    String home = System.getProperty("user.home", "");
    load(owner, library, cache(System::getenv, System.getProperty("os.name", ""), home));
  }

  static synchronized void load(Class<?> owner, String library, @Nullable Path cache) {
    String file =
        LibUtils.createLibraryFileName(
            LibUtils.createPlatformLibraryName(library + "-" + JCudaVersion.get()));
    Throwable failure = null;
    if (cache != null) {
      try {
        Path folder = cache.resolve("jcuda-" + JCudaVersion.get());
        createPrivate(folder);
        loadFrom(folder, owner, file);
        return;
      } catch (IOException | IllegalArgumentException e) {
        failure = e; // a full disk, a read-only home, a file system that runs no programs
      }
    }
    try {
      loadOnceFrom(Files.createTempDirectory("loupe-"), owner, file); // its owner's only
    } catch (IOException | IllegalArgumentException e) {
      if (failure != null) {
        e.addSuppressed(failure);
      }
      throw new GpuException(
          ("JCuda's native library %s does not load (%s): set LOUPE_CACHE to a folder that can be"
                  + " written and may hold programs")
              .formatted(file, e.getMessage()),
          e);
    }
  }

  private static void loadFrom(Path folder, Class<?> owner, String file) throws IOException {
    Path unpacked = unpack(owner, file, folder);
    try (Arena arena = Arena.ofConfined()) {
      // a class that fails to initialise is lost for good: see first that the library loads
      SymbolLookup.libraryLookup(unpacked, arena);
      initialize(owner, folder);
    }
  }

  private static void initialize(Class<?> owner, Path folder) {
    String usual = System.getProperty("java.io.tmpdir");
    System.setProperty("java.io.tmpdir", folder.toString());
    try {
      Class.forName(owner.getName(), true, owner.getClassLoader());
    } catch (ClassNotFoundException | LinkageError e) {
      throw new GpuException("JCuda does not start (%s)".formatted(e.getMessage()), e);
    } finally {
      System.setProperty("java.io.tmpdir", usual);
    }
  }

  /** Leaves nothing behind, except on Windows, which keeps the files of loaded libraries. */
  private static void loadOnceFrom(Path folder, Class<?> owner, String file) throws IOException {
    try {
      loadFrom(folder, owner, file);
    } finally {
      deleteQuietly(folder.resolve(file));
      deleteQuietly(folder);
    }
  }

  /** Where to keep libraries, or null if the environment names no folder for such things. */
  static @Nullable Path cache(UnaryOperator<@Nullable String> env, String os, String home) {
    String chosen = env.apply("LOUPE_CACHE");
    if (chosen != null && !chosen.isEmpty()) {
      return Path.of(chosen).toAbsolutePath();
    }
    boolean windows = os.startsWith("Windows");
    String shared = env.apply(windows ? "LOCALAPPDATA" : "XDG_CACHE_HOME");
    Path folder = shared != null && !shared.isEmpty() ? Path.of(shared) : Path.of(home, ".cache");
    // a user without a home has "?" or "" for one
    return folder.isAbsolute() ? folder.resolve("loupe") : null;
  }

  /** The unpacked {@code file} in {@code folder}: the one that is there if it may be trusted. */
  static Path unpack(Class<?> owner, String file, Path folder) throws IOException {
    URL url = owner.getResource("/lib/" + file);
    if (url == null) {
      throw new FileNotFoundException("JCuda has no " + file);
    }
    URLConnection resource = url.openConnection();
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
    if (!folder.getFileSystem().supportedFileAttributeViews().contains("posix")) {
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
